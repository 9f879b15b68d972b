from adamab.task import load_task


def test_the_task_file_loads_and_can_be_judged(adamab, tmp_path):
    result = adamab("init", tmp_path / "new" / "desk")
    assert result.exit_code == 0
    assert "adamab fit" in result.output
    task = load_task(tmp_path / "new" / "desk" / "task.yaml")
    assert task.name == "support-desk"
    assert all(spec.description for spec in task.classes)
    assert all(len(task.samples_of(name)) >= 2 for name in task.class_names)


def test_the_commented_parts_are_valid_too(adamab, tmp_path):
    adamab("init", tmp_path)
    path = tmp_path / "task.yaml"
    text = path.read_text().replace("# examples: ", "examples: ").replace("# prompts:", "prompts:")
    path.write_text(text.replace("#   query", "  query").replace("#   class", "  class"))
    (tmp_path / "examples.csv").write_text("text,label\nmoney back,refund\n")
    assert len(load_task(path).samples_of("refund")) == 5


def test_nothing_is_overwritten(adamab, refused, tmp_path):
    (tmp_path / "task.yaml").write_text("mine")
    assert "stays as it is" in refused("init", tmp_path)
    assert (tmp_path / "task.yaml").read_text() == "mine"


def test_impossible_places(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert refused("init", tmp_path / "file").endswith("file: is a file; name a directory\n")
    assert "below: cannot be made (Not a directory); name a" in refused("init", tmp_path / "file" / "below")
    assert "/proc/x: cannot be made (No such file or directory); name a" in refused("init", "/proc/x")
    assert "/proc/task.yaml: cannot be written (" in refused("init", "/proc")
