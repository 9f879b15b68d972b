import sys

from adamab.cli import console


def test_a_bar_only_for_people(monkeypatch, capsys):
    for there in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda there=there: there)
        for quiet in (False, True):
            with console.progress("waiting", quiet=quiet) as bar:
                bar.phase("working", 3)
                bar.step()
                bar.step(2)
            assert ("working" in capsys.readouterr().err) is (there and not quiet)


def test_tables_take_names_literally(capsys):
    console.print_table(("name", "n#"), [("[red]x[/red]", 1), ("a" * 100, 22)], title="all")
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert max(map(len, out.splitlines())) <= 80
