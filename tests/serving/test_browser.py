"""The page in a real Chromium: what people see, press and hear."""

import threading

import pytest

from adamab.run.directory import read_task
from adamab.run.reviews import Reviews
from adamab.serving.page import OPEN_PATHS
from adamab.serving.requests import Access
from adamab.testing import HashEmbedder, PixelEmbedder
from tests.fitting import fit_run

PARTS = ("try", "classes", "run", "samples")
HOSTILE = 'wants "money" & <b>more</b>'
# Every input has a label, every button and link a name, every image a text; headings go down by one.
CHECK = """() => {
  const wrong = [];
  const seen = (node) => node.checkVisibility();
  const name = (node) => (node.getAttribute("aria-label") ?? node.textContent ?? "").trim();
  for (const node of document.querySelectorAll("input, select, textarea"))
    if (!node.labels.length && !node.getAttribute("aria-label")) wrong.push(`no label: ${node.outerHTML}`);
  for (const node of document.querySelectorAll("button, a"))
    if (!name(node)) wrong.push(`no name: ${node.outerHTML}`);
  for (const node of document.querySelectorAll("img"))
    if (!node.alt) wrong.push(`no text: ${node.outerHTML}`);
  for (const node of document.querySelectorAll("svg"))
    if (!node.getAttribute("aria-label")) wrong.push("a drawing without words");
  for (const table of document.querySelectorAll("table"))
    if (!table.querySelector("th[scope]")) wrong.push("a table without heads");
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`twice: ${id}`);
  let level = 0;
  for (const node of [...document.querySelectorAll("h1, h2, h3, h4")].filter(seen)) {
    const now = Number(node.tagName[1]);
    if (now > level + 1) wrong.push(`h${now} after h${level}: ${node.textContent}`);
    level = now;
  }
  for (const tag of ["main", "nav", "header", "h1"])
    if (document.querySelectorAll(tag).length !== 1) wrong.push(`not one ${tag}`);
  return wrong;
}"""
# The contrast of what is written with what is behind it, where both are plain colours.
CONTRAST = """() => {
  const number = (text) => {
    const mixed = text.match(/color\\(srgb ([^)]+)\\)/);
    const parts = (mixed ? mixed[1] : text.replace(/rgba?\\(/, "")).match(/[\\d.]+/g).map(Number);
    const scale = mixed ? 1 : 255;
    return { rgb: parts.slice(0, 3).map((v) => v / scale), alpha: parts[3] ?? 1 };
  };
  const light = ({ rgb }) => {
    const [r, g, b] = rgb.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = number(getComputedStyle(at).backgroundColor);
      if (colour.alpha === 1) return colour;
    }
    return { rgb: [1, 1, 1], alpha: 1 };
  };
  const wrong = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const quiet = node.closest("[aria-hidden], :disabled, svg, .unseen, .matrix .none");
    if (!own || quiet || !node.checkVisibility()) continue;
    const a = light(number(getComputedStyle(node).color)), b = light(ground(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) wrong.push(`${ratio.toFixed(2)} ${node.className} ${node.textContent.slice(0, 30)}`);
  }
  return wrong;
}"""


@pytest.fixture
def server(live, shown_run):
    return live(shown_run, HashEmbedder(width=16))


def opened(page, part):
    """A part with its data in it."""
    page.click(f"nav a[href='#{part}']")
    wait = {"try": "#text, .drop", "classes": ".classes", "run": ".strips", "samples": ".sample"}[part]
    page.wait_for_selector(f"#part-{part} :is({wait})")
    return page.locator(f"#part-{part}")


def ask(page, text):
    page.fill("#text", text)
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer")


def test_a_text_is_ranked_before_and_after_with_its_neighbours(until, shown_server, visit):
    page = visit(shown_server.url)
    ask(page, "send the money back")
    assert page.inner_text(".answer h3") == HOSTILE
    assert page.locator("[aria-label='Probabilities'] li").count() == 3
    before = page.locator("[aria-label='Before calibration'] li")
    assert before.count() == 3
    assert not before.nth(0).is_visible()  # folded away
    page.click("summary:has-text('Before calibration')")
    assert before.nth(0).is_visible()
    for source in ("given", "synthetic"):
        assert page.locator(f"[aria-label='Nearest {source} samples'] li").count() == 5
    assert HOSTILE in page.inner_text("#announcer")
    page.click(".example >> nth=1")
    until(page, "document.querySelector('.answer h3').textContent === 'login'")
    page.fill("#text", "  ")
    page.keyboard.press("Enter")
    page.wait_for_selector(".result .bad")
    assert "type a text first" in page.inner_text(".result")
    assert page.locator(".answer").count() == 0
    page.locator("#text").evaluate("(field) => { field.value = 'a'.repeat(99999); }")
    page.locator("#text").press_sequentially("bcd")
    assert page.input_value("#text").endswith("ab")
    assert "100,000 characters at most" in page.inner_text(".try-form")


def test_classes_and_the_run_say_what_happened_and_why(until, shown_server, visit):
    page = visit(shown_server.url)
    part = opened(page, "classes")
    assert part.locator(".opener").all_inner_texts() == [HOSTILE, "login", "praise"]
    part.locator(".opener >> nth=0").press("Enter")
    part.locator(".details").wait_for()
    assert "onerror" in part.locator(".details").inner_text()
    assert part.locator(".matrix tbody tr").count() == 3
    part.locator("#class-words").fill("prai")
    until(page, "document.querySelectorAll('.opener').length === 1")
    part = opened(page, "run")
    assert "Training loss from" in part.locator(".chart svg").get_attribute("aria-label")
    assert part.locator(".strips tbody tr").count() == 3
    row = part.locator(".rounds > tbody > tr:not(.detail)").nth(0)
    assert not row.is_visible()  # δ² and bonus are details
    part.locator("summary", has_text="Details").click()
    cells = [row.locator("td").nth(n).inner_text() for n in (1, 2, 3)]
    score, bonus, shift = (float(cell.replace("−", "-")) for cell in cells)
    assert score == pytest.approx(bonus - shift, abs=0.02 * abs(bonus) + 1)
    row.get_by_role("button").click()
    assert part.locator(".inner >> nth=0").locator("tbody tr").count() == 3
    assert "Nothing was spent" in part.inner_text()


def test_samples_are_reviewed_with_one_key_and_filtered(until, server, visit, shown_run):
    page = visit(server.url)
    part = opened(page, "samples")
    first, second = (part.locator(".sample").nth(n).locator(".quote").inner_text() for n in (0, 1))
    page.keyboard.press("r")
    part.locator(".sample.rejected").wait_for()
    assert part.locator(".sample").nth(0).locator(".reject").get_attribute("aria-pressed") == "true"
    until(page, "document.getElementById('notices').textContent.includes('1 change waits')")
    until(page, "document.getElementById('sample-verdict').textContent.includes('Rejected (1)')")
    assert part.locator(".sample.current .quote").inner_text() == second  # the eye goes on
    page.keyboard.press("a")
    part.locator(".sample.accepted").wait_for()
    page.keyboard.press("u")
    until(page, "!document.querySelector('.sample.accepted')")
    page.keyboard.press("u")
    until(page, "!document.querySelector('.sample.rejected')")
    assert part.locator(".sample.current .quote").inner_text() == first
    assert set(Reviews(shown_run).latest().values()) == {"none"}
    page.keyboard.press("k")
    page.keyboard.press("j")
    assert part.locator(".sample.current .quote").inner_text() == second
    part.get_by_label("Class").select_option(HOSTILE)
    tags = "new Set([...document.querySelectorAll('.sample .tag')].map((n) => n.textContent))"
    until(page, f"{tags}.size === 1")
    part.get_by_label("Quality gate").select_option("any")
    until(page, "!document.querySelector('.sample:not(.out)') && !!document.querySelector('.sample.out')")
    part.get_by_label("Find").fill("no such words")
    part.locator(".empty").wait_for()


def test_a_wrong_answer_becomes_an_example_and_samples_move_in_bulk(until, server, visit, shown_run):
    page = visit(server.url, viewport={"width": 390, "height": 844})
    waits = "document.getElementById('notices').textContent.startsWith('{}')"
    ask(page, "send the money back")
    page.select_option("#right-class", "praise")
    page.get_by_role("button", name="Add as an example").click()
    until(page, waits.format("1 change waits"))
    assert "send the money back" in {sample.text for sample in read_task(shown_run).samples_of("praise")}
    page.get_by_role("button", name="Undo").click()
    until(page, "document.getElementById('notices').textContent === ''")
    part = opened(page, "samples")
    part.locator(".sample").nth(2).get_by_role("checkbox").check()
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert part.get_by_role("toolbar").inner_text().startswith("2 selected")
    assert page.evaluate(CHECK) == []
    assert page.evaluate(CONTRAST) == []
    part.get_by_role("toolbar").get_by_role("button", name="Reject").click()
    until(page, "document.querySelectorAll('.sample.rejected').length === 2")
    part.get_by_label("Source").select_option("given")
    until(page, "document.querySelectorAll('.sample.given').length === 13")
    part.get_by_role("button", name="Select all that are shown").click()
    part.get_by_label("Move the selected samples to").select_option("login")
    until(page, "[...document.querySelectorAll('.sample .tag')].every((tag) => tag.textContent === 'login')")


@pytest.mark.parametrize("width", [390, 1280])
def test_classes_are_changed_on_the_page(until, server, visit, shown_run, width):
    page = visit(server.url, viewport={"width": width, "height": 844})
    part = opened(page, "classes")

    def opened_class(name):
        part.locator(".opener", has_text=name).click()
        part.locator(".details summary:visible").click()

    def listed(*names):
        shown = "[...document.querySelectorAll('.opener')].map((n) => n.textContent).join()"
        until(page, f"{shown} === '{','.join(names)}'")

    part.locator("summary", has_text="Add a class").click()
    part.locator(".panel.change").get_by_label("Name").fill("bye")
    part.get_by_label("Examples, one a line").fill("good bye\n\nso long\n")
    assert page.evaluate(CHECK) == []
    part.get_by_role("button", name="Add the class").click()
    listed(HOSTILE, "login", "praise", "bye")
    opened_class("login")
    part.locator(".details").get_by_label("Name").fill("sign <in>")
    part.get_by_role("button", name="Save").click()
    listed(HOSTILE, "sign <in>", "praise", "bye")
    part.locator(".details summary:visible").click()  # it stays open under its new name
    part.get_by_label("Merge into").select_option("praise")
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    part.get_by_role("button", name="Merge", exact=True).click()
    listed(HOSTILE, "praise", "bye")
    page.once("dialog", lambda dialog: dialog.accept())
    part.locator(".opener", has_text="praise").click()  # it was opened, and is closed again
    opened_class("bye")
    part.get_by_role("button", name="Remove this class").click()
    listed(HOSTILE, "praise")
    assert read_task(shown_run).class_names == (HOSTILE, "praise")


def test_a_fit_is_started_followed_and_its_failure_shown(until, live, visit, local_run):
    server = live(local_run, None)
    page = visit(server.url, "samples", viewport={"width": 390, "height": 844})
    page.wait_for_selector(".sample")
    page.keyboard.press("r")
    page.get_by_role("button", name="Fit again").click()
    page.get_by_role("button", name="Stop").wait_for()
    assert page.locator("progress").is_visible()
    assert page.evaluate(CHECK) == []
    assert page.evaluate(CONTRAST) == []
    until(page, "document.getElementById('notices').textContent.startsWith('Fitted again in')")
    (local_run.parent / "written.jsonl").unlink()
    page.click("nav a[href='#run']")
    page.locator(".again").get_by_role("button", name="Fit again").click()
    page.wait_for_selector("#notices .bad")
    assert "written.jsonl" in page.inner_text("#notices .bad")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (390, "dark"), (1440, "light")])
def test_every_part_is_readable_and_no_data_becomes_html(shown_server, visit, width, scheme):
    page = visit(shown_server.url, viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert page.inner_text("h1") == 'server_state <i>of "ours"</i>'
    ask(page, "<img src=x onerror='window.hacked = 3'> send the money back")
    for part in PARTS:
        opened(page, part)
        if part == "classes":
            page.click(".opener >> nth=0")
            page.wait_for_selector(".details")
        if part == "run":
            page.click("summary:has-text('Details')")
            page.click("[data-round] >> nth=0")
        assert page.evaluate(CHECK) == []
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, part
        assert page.locator("main :is(b, i, script, img)").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("width", [360, 1280])
def test_the_interface_is_described_from_the_servers_own_document(shown_server, visit, width):
    page = visit(shown_server.url, viewport={"width": width, "height": 844})
    page.click("text=API")
    page.wait_for_selector("article >> nth=3")
    described = page.inner_text("main")
    for words in ("/v1/classify", "results[].class", "multipart/form-data", "curl http://127.0.0.1"):
        assert words in described
    assert page.evaluate(CHECK) == []
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_keys_focus_and_theme(shown_server, visit):
    page = visit(shown_server.url, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    for _ in range(2):
        page.click("#theme")
    assert page.inner_text("#theme") == "Theme: dark"
    assert page.evaluate(ground) != light
    for number, part in enumerate(PARTS, 1):
        page.locator("#main").focus()
        page.keyboard.press(str(number))
        page.wait_for_selector(f"#part-{part}:not([hidden])")
        assert page.locator("nav [aria-current]").get_attribute("href") == f"#{part}"
    page.reload()
    page.wait_for_selector("#part-samples .sample")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.locator("#main").focus()
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()


def test_an_image_is_dropped_and_its_neighbours_are_seen(until, live, visit, tmp_path, image_run):
    page = visit(live(image_run, PixelEmbedder()).url)
    page.set_input_files("#image", tmp_path / "given" / "blue" / "0-1.png")
    page.wait_for_selector(".answer")
    assert page.inner_text(".answer h3") == "blue"
    until(page, "[...document.images].some((i) => i.className === 'thumbnail' && i.naturalWidth > 1)")
    opened(page, "samples")
    until(page, "document.querySelector('.sample .thumbnail').src.startsWith('blob:')")
    assert page.evaluate(CHECK) == []
    page.click(".sample .enlarge >> nth=0")
    until(page, "document.querySelector('#large img')?.naturalWidth > 1")
    page.keyboard.press("Escape")
    until(page, "!document.getElementById('large').open")
    opened(page, "try")
    page.wait_for_selector(".dropped:not([hidden])")


def test_a_broken_image_and_a_model_that_cannot_be_loaded(until, live, chromium, image_run, monkeypatch):
    monkeypatch.setattr("adamab.serving.service._PAUSE", 0.01)
    page = chromium.new_context().new_page()  # refusals are errors of the console
    page.goto(live(image_run, PixelEmbedder()).url)
    page.set_input_files("#image", {"name": "a.png", "mimeType": "image/png", "buffer": b"no image"})
    page.wait_for_selector(".result .bad")
    assert "images.0" not in page.inner_text(".result .bad").lower()
    until(page, "document.querySelector('.dropped').hidden")
    document = (image_run / "model.json").read_bytes()
    (image_run / "model.json").write_bytes(document + b"damaged")
    page.reload()
    page.get_by_role("button", name="Use the new model").click()
    page.wait_for_selector("#notices .bad")
    assert "cannot be opened" in page.inner_text("#notices")
    (image_run / "model.json").write_bytes(document + b"\n")
    page.get_by_role("button", name="Use the new model").click()
    until(page, "document.getElementById('notices').textContent === ''")
    page.context.close()


def test_the_token_is_asked_for_once(until, live, shown_run, chromium):
    server = live(shown_run, HashEmbedder(width=16), Access(token="secret", open_paths=OPEN_PATHS))
    page = chromium.new_context().new_page()
    page.set_default_timeout(30_000)
    page.goto(server.url)
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    until(page, "document.getElementById('ask-wrong').textContent !== ''")
    page.fill("#token", "secret")
    page.keyboard.press("Enter")
    page.wait_for_selector("#state[data-state='finished']")
    page.reload()
    page.wait_for_selector("#state[data-state='finished']")
    assert not page.locator("#ask").is_visible()
    assert page.evaluate("sessionStorage.getItem('adamab-token')") == "secret"
    assert page.evaluate("localStorage.length") == 0
    page.context.close()


def test_rounds_appear_while_a_fit_goes_on(until, live, visit, shown_order, tmp_path):
    gate, first = threading.Semaphore(0), threading.Event()

    def ended(record):
        first.set()
        gate.acquire()

    run = tmp_path / "run"
    fit = threading.Thread(target=fit_run, args=(shown_order, run), kwargs={"on_round": ended})
    fit.start()
    try:
        assert first.wait(60)
        page = visit(live(run, HashEmbedder(width=16)).url, "run")
        page.evaluate("window.stayed = true")
        rounds = "document.querySelectorAll('.rounds > tbody > tr:not(.detail)').length"
        until(page, f"{rounds} === 1")
        assert page.locator("#state").get_attribute("data-state") == "running"
        gate.release(2)
        until(page, f"{rounds} === 3")
        assert "first fit is under way" in page.inner_text("#notices")
    finally:
        gate.release(1000)
        fit.join()
    until(page, "document.getElementById('state').dataset.state === 'finished'")
    until(page, f"{rounds} >= 8")
    until(page, "document.getElementById('notices').textContent === ''")  # the model is loaded
    assert page.evaluate("window.stayed")
