import json


def test_a_report_is_written_where_one_stands(adamab, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = adamab("report", model)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("report.html (")
    assert "cannot sign in" in (tmp_path / "report.html").read_text("utf-8")


def test_path_and_size_as_json(adamab, model, tmp_path):
    file = tmp_path / "toy.html"
    read = json.loads(adamab("report", model, "-o", file, "--no-samples", "--json").stdout)
    assert read == {"path": str(file), "bytes": file.stat().st_size, "replaced": False, "samples": False}
    assert "sign in today" not in file.read_text("utf-8")
    assert json.loads(adamab("report", model, "-o", file, "--json").stdout)["replaced"]


def test_a_report_on_standard_output(adamab, refused, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = adamab("report", model, "-o", "-")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.rstrip().endswith("</html>")
    assert list(tmp_path.iterdir()) == []
    assert "name the directory of adamab fit --run" in refused("report", tmp_path)
    assert "leave --json out" in refused("report", model, "-o", "-", "--json")
