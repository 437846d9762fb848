"""The live page in headless Chromium: every view under load, by mouse and by keyboard, on desktops and phones, light and dark; hostile texts; many readers.

QUIRE_SCREENSHOTS=FOLDER saves the pictures of docs/dashboard.md.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import socket
import threading
import time

import httpx
import pytest

from conftest import GOLDEN, Server, eventually, served, skip_without_binary_and_model

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PREFIXES = ["You are a patient teacher who explains the sea, its tides and its animals to children of eight years. " * 6,
            "You are a cook who knows every soup between Lisbon and Riga and writes recipes in short sentences. " * 4]
TABS = ["Overview", "Pages", "Prefix tree", "A request", "Chat", "Why a cache", "Explain"]
# A phone of 360 pixels and a laptop; each in the other's colours.
SCREENS = {"desktop": {"viewport": {"width": 1100, "height": 800}, "color_scheme": "light"},
           "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "has_touch": True, "is_mobile": True}}


@contextlib.contextmanager
def load(server, clients=3):
    """Clients that send requests with a shared beginning, one after the other."""
    ended = threading.Event()

    def run(number):
        with httpx.Client(timeout=60) as client:
            for i in range(10_000):
                if ended.is_set():
                    return
                body = {"model": "smollm2", "prompt": f"{PREFIXES[i % 4 == 0]} Question {number}, {i}: why is", "max_tokens": 48, "temperature": 0.8, "ignore_eos": True}
                client.post(server.url + "/completions", json=body)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


@pytest.fixture(scope="module")
def busy():
    with served("--max-model-len", "1024", "--kv-cache-size", "48MiB", "--max-num-seqs", "8", "--host-cache-size", "16MiB") as running:
        yield running


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -r tests/e2e/requirements.txt")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as runtime:
        started = runtime.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # CI runs as root
        yield started
        started.close()


@contextlib.contextmanager
def opened(browser, server, screen="desktop", path="/dashboard", allowed="status of 401", **options):
    """A page that may report no error but `allowed`, run nothing that its policy forbids, and ask nobody but its server."""
    context = browser.new_context(**SCREENS[screen], reduced_motion="reduce", **options)
    page = context.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
    page.on("console", lambda message: problems.append(f"console: {message.text}") if message.type == "error" and not re.search(allowed, message.text) else None)
    page.on("request", lambda request: problems.append(f"asks {request.url}") if not request.url.startswith(server.base) else None)
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.set_default_timeout(30_000)
    page.goto(server.base + path)
    try:
        yield page
        assert problems == []
    finally:
        context.close()


def live(page):
    page.get_by_text("Live", exact=True).wait_for()


def painted(page):
    """How many colours the view's canvas shows."""
    return page.evaluate("""() => {
        const canvas = document.querySelector('main canvas');
        const data = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
        return new Set(data).size;
    }""")


def picture(page, name):
    folder = os.environ.get("QUIRE_SCREENSHOTS")
    if folder:
        page.screenshot(path=pathlib.Path(folder) / f"dashboard-{name}.png", full_page=False)


def fits(page, screen):
    """The page does not scroll sideways."""
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen]["viewport"]["width"]


@contextlib.contextmanager
def limits_known(page):
    """Begins once the page has measured the multiply rate, for which nothing may run."""
    live(page)
    assert eventually(lambda: re.search(r" % of [\d.]+ [GT] MAC/s", tile(page, "Multiplied")))
    yield


def tile(page, name):
    return page.locator("dl.tiles div", has=page.get_by_text(name, exact=True)).locator("dd").inner_text()


@pytest.mark.parametrize("screen", SCREENS)
def test_every_view_shows_the_load(browser, busy, screen):
    with opened(browser, busy, screen) as page, limits_known(page), load(busy):

        def visit(tab):
            page.get_by_role("link", name=tab, exact=True).click()
            page.locator("nav a[aria-current=page]", has_text=tab).wait_for()
            fits(page, screen)

        visit("Overview")
        assert "smollm2" in page.locator("#model").inner_text()
        assert eventually(lambda: int(tile(page, "Running").split()[0]) > 0)
        assert eventually(lambda: float(tile(page, "Generated").split()[0]) > 0)
        assert eventually(lambda: page.locator("tbody tr").count() >= 2)
        assert eventually(lambda: painted(page) >= 4)
        assert eventually(lambda: re.search(r"GB/s\n\s*[\d.]+ % of [\d.]+ GB/s", tile(page, "Read while decoding")))
        page.wait_for_timeout(3000 if os.environ.get("QUIRE_SCREENSHOTS") else 500)
        page.locator("canvas").hover(position={"x": 120, "y": 150})
        assert re.match(r"Step [\d,]+: .* (decode|prompt) row", page.locator("#step-details").inner_text())
        picture(page, f"overview-{screen}")

        visit("Pages")
        assert eventually(lambda: re.search(r"[1-9]\d* owned, [1-9]\d* shared, [1-9]\d* cached, \d+ free", page.locator("section p").first.inner_text()))
        assert painted(page) >= 4
        canvas = page.locator("canvas[tabindex]")
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + 4, box["y"] + 4)
        assert page.locator("#page-details").inner_text().startswith("Page 0: ")
        canvas.focus()
        words = set()

        def every_use_was_seen():
            """A walk over all pages; requests come and go meanwhile."""
            page.keyboard.press("Home")
            for _ in range(160):
                words.add(re.sub(r"^Page \d+: |\d+", "", page.locator("#page-details").inner_text()))
                page.keyboard.press("ArrowRight")
            return {"belongs to request .", "cached for future prompts; nobody uses it.", "shared by  sequences, request  among them."} <= words

        assert eventually(every_use_was_seen, 60), words
        # Pages that the pool has evicted.
        assert eventually(lambda: re.search(r"[1-9]\d* pages on host, 0 pages on disk", page.locator("section").inner_text()), 60)
        assert page.get_by_role("img", name="Pages in host memory").is_visible()
        picture(page, f"pages-{screen}")

        visit("Prefix tree")
        assert eventually(lambda: page.locator(".branches li").count() >= 3)
        assert eventually(lambda: page.locator(".branches li.many, .branches li.used").count() >= 1)
        picture(page, f"prefixes-{screen}")

        visit("Overview")
        page.locator("tbody a").first.wait_for()
        page.evaluate("document.querySelector('tbody a').click()")  # rows come and go
        assert eventually(lambda: page.locator("svg rect.fill-decode").count() >= 5)
        assert page.locator("svg rect.fill-waiting").count() == 1
        assert eventually(lambda: "ended" in page.locator("#life-summary").inner_text())
        assert page.locator("svg rect.fill-prefill").count() >= 1
        assert "48 tokens" in page.locator("#life-summary").inner_text()
        fits(page, screen)
        picture(page, f"life-{screen}")

        visit("Chat")
        settings(page, Most_tokens="12", Temperature="0")
        send(page, "Is an_unbroken_word_" + "that_is_far_longer_than_a_phone_is_wide_" * 3 + " a word?")
        assert eventually(lambda: page.locator(".message.assistant").count() == 1 and page.get_by_role("button", name="Send").is_enabled())
        fits(page, screen)
        picture(page, f"chat-{screen}")

        visit("Why a cache")
        for _ in range(8):
            page.locator("#cache-step").press("ArrowRight")
        assert "36 computations of K and V without a cache, 8 with it" in page.locator("main [role=status]").inner_text()
        assert page.locator("table.grid").nth(0).locator(".again").count() == 28
        assert page.locator("table.grid").nth(1).locator(".read").count() == 28
        page.locator("table.grid").nth(1).locator(".read").first.click()
        assert "read from the cache, page 0, place 0" in page.locator(".details").inner_text()
        fits(page, screen)
        picture(page, f"cache-{screen}")

        visit("Explain")
        explain(page, "The sea was calm that morning, and", layer=3, head=2)
        assert re.match(r"\d+ tokens, layer 3 of \d+, head 2 of \d+, which reads KV head \d+\. The last token is “␣and”\.", page.locator("main [role=status]").inner_text())
        assert page.locator("ol.steps > li").count() == 15
        weights = page.locator("#step-attention .words").all_inner_texts()
        assert len(weights) == int(page.locator("main [role=status]").inner_text().split()[0])
        assert abs(sum(float(words.split(" %")[0]) for words in weights) - 100) < 4  # each is rounded
        assert page.locator("#step-logits .shares li").count() == 10
        bars = page.locator("#step-projections .strip").first.locator("button")
        assert bars.count() == 16
        bars.nth(2).hover()
        assert re.match(r"query, number 2: -?[\d.]+", page.locator(".details").inner_text())
        fits(page, screen)
        picture(page, f"explain-{screen}")


def explain(page, text, layer=0, head=0):
    for field, value in {"text": text, "layer": layer, "head": head}.items():
        page.locator(f"#explain-{field}").fill(str(value))
    page.get_by_role("button", name="Explain", exact=True).click()
    assert eventually(lambda: not page.locator("main [role=status]").inner_text().startswith(("Up to", "Computing")))


def send(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_label("Message", exact=True).press("Enter")


def settings(page, **values):
    if not page.get_by_label("System prompt").is_visible():
        page.get_by_text("Settings", exact=True).click()
    for label, value in values.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(value)


def test_a_chat(browser, busy, tmp_path):
    with opened(browser, busy, path="/dashboard#chat") as page:
        live(page)
        settings(page, System_prompt="Answer in one sentence.", Temperature="0", Most_tokens="24", Seed="1")
        send(page, "What is the capital of France?")
        answer = page.locator(".message.assistant")
        assert eventually(lambda: page.get_by_role("button", name="Send").is_enabled() and answer.count() == 1)
        first = answer.inner_text()
        assert "Paris" in first
        assert re.search(r"\d+ tokens in .*; \d+ of \d+ prompt tokens came from the cache", page.locator("section [role=status]").inner_text())

        # Regenerating replaces the answer; greedy sampling gives the same.
        page.get_by_role("button", name="Regenerate").click()
        assert eventually(lambda: page.get_by_role("button", name="Send").is_enabled())
        assert answer.count() == 1 and answer.inner_text() == first

        # Token probabilities, with alternatives.
        page.get_by_label("Token probabilities").check()
        page.get_by_role("button", name="Regenerate").click()
        assert eventually(lambda: page.locator(".tokens button").count() >= 5)
        assert eventually(lambda: page.get_by_role("button", name="Send").is_enabled())
        page.locator(".tokens button").nth(1).hover()
        assert re.match(r"Token 2, “.*”: [\d.]+ %\. Instead: “.*” [\d.]+ %", page.locator("article .details").inner_text())
        picture(page, "chat-desktop")
        page.get_by_label("Token probabilities").uncheck()

        # An attached text is part of the message, and what is no text is refused.
        notes, image = tmp_path / "notes.txt", tmp_path / "image.png"
        notes.write_text("The code word is heron.\n```\n")
        image.write_bytes(b"\x89PNG\0\xff")
        with page.expect_request("**/v1/chat/completions") as sent:
            page.get_by_label("Attach text files").set_input_files([str(notes), str(image)])
            page.get_by_text("Attached: notes.txt").wait_for()
            assert "image.png is not attached" in page.locator("section [role=status]").inner_text()
            send(page, "Which word?")
        body = sent.value.post_data_json
        assert body["messages"][0] == {"role": "system", "content": "Answer in one sentence."}
        assert body["messages"][-1]["content"] == "Which word?\n\nnotes.txt:\n````\nThe code word is heron.\n```\n\n````"
        assert body["temperature"] == 0 and body["seed"] == 1 and body["model"] == "smollm2" and "top_k" not in body
        assert eventually(lambda: page.get_by_role("button", name="Send").is_enabled())

        # Stop keeps what has come.
        settings(page, Most_tokens="600")
        send(page, "Write a very long story about a lighthouse.")
        assert eventually(lambda: len(page.locator(".message.assistant").last.inner_text()) > 20)
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Stopped.").wait_for()
        stopped = page.locator(".message.assistant").last.inner_text()
        assert eventually(lambda: re.search(r"^quire:num_requests_running\{[^}]*\} 0", httpx.get(busy.base + "/metrics").text, re.M))

        # The conversation is there after a reload, and can be deleted.
        page.reload()
        live(page)
        assert page.locator(".message.assistant").last.inner_text() == stopped
        page.get_by_role("button", name="New chat", exact=True).click()
        assert page.locator(".message").count() == 0
        page.get_by_role("button", name="What is the capital of France?", exact=True).click()
        assert page.locator(".message.user").count() == 3
        page.get_by_role("button", name="Delete What is the capital of France?").click()
        assert page.locator(".message").count() == 0
        assert json.loads(page.evaluate("localStorage.getItem('quire.chats')")) == []


def test_the_keyboard_alone_is_enough(browser, busy):
    with load(busy, 2), opened(browser, busy) as page:
        live(page)
        assert eventually(lambda: page.locator("tbody tr").count() >= 1)

        def focused():
            return page.evaluate("document.activeElement.textContent || document.activeElement.getAttribute('aria-label')")

        def tab_to(name, most=60):
            for _ in range(most):
                page.keyboard.press("Tab")
                if (focused() or "").strip().startswith(name):
                    # What has the focus can be seen to have it.
                    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                    return
            raise AssertionError(f"Tab does not reach {name}")

        page.keyboard.press("Tab")
        assert focused() == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        tab_to("The last steps")
        page.keyboard.press("ArrowLeft")
        first = page.locator("#step-details").inner_text()
        page.keyboard.press("Home")
        assert first.startswith("Step ") and page.locator("#step-details").inner_text() != first

        page.reload()
        live(page)
        tab_to("Pages")
        page.keyboard.press("Enter")
        tab_to("Map of the pages")
        for key, words in [("Home", "Page 0:"), ("ArrowRight", "Page 1:"), ("ArrowLeft", "Page 0:")]:
            page.keyboard.press(key)
            assert page.locator("#page-details").inner_text().startswith(words)

        page.evaluate("location.hash = '#chat'")
        page.locator("textarea[aria-label=Message]").wait_for()
        tab_to("Settings")
        page.keyboard.press("Enter")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.type") == "checkbox":
                break
        page.keyboard.press("Space")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.getAttribute('aria-label')") == "Message":
                break
        page.keyboard.type("Say hello to the sea.")
        page.keyboard.press("Enter")
        assert eventually(lambda: page.locator(".tokens button").count() >= 3)
        assert eventually(lambda: page.get_by_role("button", name="Send").is_enabled(), 60)
        page.locator("[role=log]").focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.parentElement.className") == "tokens"
        page.keyboard.press("ArrowRight")
        assert page.locator("article .details").inner_text().startswith("Token 2, ")

        page.evaluate("location.hash = '#cache'")
        page.locator("#cache-step").wait_for()
        tab_to("Play")
        page.keyboard.press("Enter")
        assert eventually(lambda: "After 8 tokens: 36" in page.locator("main [role=status]").inner_text())
        page.locator("table.grid").first.locator("button[tabindex='0']").focus()
        page.keyboard.press("ArrowDown")
        assert "Step 2, token 1" in page.locator(".details").inner_text() and "computed again" in page.locator(".details").inner_text()

        page.evaluate("location.hash = '#explain'")
        page.locator("#explain-text").wait_for()
        tab_to("Explain")
        page.keyboard.press("Enter")
        assert eventually(lambda: page.locator("ol.steps > li").count() == 15)
        tab_to("", 1)  # the first number of the first strip
        page.keyboard.press("ArrowRight")
        assert ", number 1: " in page.locator(".details").inner_text()


HOSTILE = "<img src=x onerror=\"alert(1)\"><script>alert(2)</script>\"'></p>"


def test_a_model_is_chosen(browser):
    server = Server("--log-level", "warning", models=[f"{name}={GOLDEN / 'models' / name}" for name in ("qwen2", "mistral")])

    def shows(page, text):
        return eventually(lambda: page.locator("#model").inner_text().startswith(text))

    with opened(browser, server) as page:
        live(page)
        assert shows(page, "qwen2 · ")
        choice = page.locator("#models")
        assert choice.locator("option").all_inner_texts() == ["the first that is loaded", "qwen2", "mistral (unloaded)"]
        choice.select_option("mistral")
        assert shows(page, "mistral is not loaded")
        assert page.evaluate("location.hash") == "#overview?model=mistral"
        body = {"model": "mistral", "prompt": [5, 6, 7], "max_tokens": 4}
        assert httpx.post(server.url + "/completions", json=body, timeout=60).status_code == 200
        assert shows(page, "mistral · ")
        page.get_by_role("link", name="Pages").click()
        assert page.evaluate("location.hash") == "#pages?model=mistral"
        page.reload()
        assert shows(page, "mistral · ") and choice.input_value() == "mistral"
        choice.focus()
        page.keyboard.press("ArrowUp")
        assert shows(page, "qwen2 · ") and page.evaluate("location.hash") == "#pages?model=qwen2"
        fits(page, "desktop")
    code, log = server.stop()
    assert code == 0, log


def test_hostile_names_and_prompts_are_text(browser):
    skip_without_binary_and_model()
    running = Server("--log-level", "warning", "--max-model-len", "512", name=HOSTILE)
    try:
        with opened(browser, running, allowed="status of 40[01]") as page:
            live(page)
            assert page.locator("#model").inner_text().startswith(HOSTILE)
            for tab in TABS:
                page.get_by_role("link", name=tab, exact=True).click()
                page.wait_for_timeout(300)
                assert page.locator("main img, main script, main iframe").count() == 0
            page.get_by_role("link", name="Chat", exact=True).click()
            settings(page, Most_tokens="4")
            send(page, HOSTILE)
            assert eventually(lambda: page.get_by_role("button", name="Send").is_enabled() and page.locator(".message").count() == 2)
            assert HOSTILE in page.locator(".message.user").inner_text()
            assert page.locator(".chat aside li button").first.inner_text() == HOSTILE[:40].strip()
            assert page.locator("main img, main script").count() == 0
            page.get_by_role("link", name="Why a cache", exact=True).click()
            page.locator("#cache-text").fill(HOSTILE)
            page.locator("#cache-text").press("Enter")
            page.locator("#cache-step").press("End")
            page.wait_for_timeout(300)
            assert page.locator("main img, main script").count() == 0
            page.get_by_role("link", name="Explain", exact=True).click()
            explain(page, "<img src=x><b>")
            assert "<" in "".join(page.locator("#step-attention .label").all_inner_texts())
            assert page.locator("main img, main b").count() == 0
            explain(page, HOSTILE)
            assert page.locator("main [role=status]").inner_text().startswith("Not explained: text: has ")
            assert page.locator("ol.steps > li").count() == 0
    finally:
        code, log = running.stop()
    assert code == 0, log


# What a model may answer, and what the page makes of it: (text, the HTML that the elements would have).
MARKDOWN = [
    (HOSTILE, "<p>&lt;img src=x onerror=\"alert(1)\"&gt;&lt;script&gt;alert(2)&lt;/script&gt;\"'&gt;&lt;/p&gt;</p>"),
    ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>"),
    ("[a](JaVaScRiPt:alert)", "<p>[a](JaVaScRiPt:alert)</p>"),
    ("[a](data:text/html,x)", "<p>[a](data:text/html,x)</p>"),
    ("[a](/dashboard)", "<p>[a](/dashboard)</p>"),
    ("[a](https://x.org/\"onclick=\"y)", '<p><a href="https://x.org/%22onclick=%22y" rel="noopener noreferrer nofollow" target="_blank">a</a></p>'),
    ("![a](https://x.org/pixel.png)", '<p>!<a href="https://x.org/pixel.png" rel="noopener noreferrer nofollow" target="_blank">a</a></p>'),
    ("# A\n\nb **c** *d* `<e>` ~~f~~ \\*g\\*", "<h4>A</h4><p>b <strong>c</strong> <em>d</em> <code>&lt;e&gt;</code> <del>f</del> *g*</p>"),
    ("snake_case_name and 2*3*4", "<p>snake_case_name and 2<em>3</em>4</p>"),
    ("- a\n- b\n  - c\n\n1. d\n2. e", '<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul><ol start="1"><li>d</li><li>e</li></ol>'),
    ("```py\nx = '<b>'\n\n# y\n```\nz", '<pre tabindex="0"><code>x = \'&lt;b&gt;\'\n\n# y</code></pre><p>z</p>'),
    ("```\nnever closed", '<pre tabindex="0"><code>never closed</code></pre>'),
    ("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"),
    ("| a | b |\n|---|:-:|\n| 1 | <i> |", '<div class="scroll"><table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td>&lt;i&gt;</td></tr></tbody></table></div>'),
    ("a\nb\n\n---", "<p>a<br>b</p><hr>"),
]


def test_markdown_of_models_is_safe_and_bounded(browser, busy):
    with opened(browser, busy) as page:
        render = """async (text) => {
            const {markdown} = await import('/dashboard/markdown.js');
            const box = document.createElement('div');
            const began = performance.now();
            box.append(...markdown(text));
            return [box.innerHTML, performance.now() - began, box.textContent.length];
        }"""
        for text, html in MARKDOWN:
            assert page.evaluate(render, text)[0] == html, text
        # What would make a careless parser slow or deep.
        for text in ["*" * 20_000, "[" * 20_000, "`" * 20_001, "> " * 5_000 + "a", "_a" * 10_000, "**a " * 5_000, "\n".join(" " * min(i, 12) + "- x" for i in range(3_000)),
                     "|" * 20_000 + "\n" + "|-" * 10_000, "\\" * 20_000, "a\n" * 20_000]:
            assert page.evaluate(render, text)[1] < 3_000, text[:20]


def test_the_key_is_asked_for(browser):
    with served("--max-model-len", "512", "--api-key", "sk-right") as keyed:
        assert httpx.get(keyed.base + "/dashboard/events").status_code == 401
        with opened(browser, keyed) as page:
            for key in ("sk-wrong", "sk-right"):
                page.get_by_label("This server needs an API key").fill(key)
                page.get_by_role("button", name="Continue").click()
                if key == "sk-wrong":
                    page.wait_for_timeout(500)
                    page.locator("#key-form").wait_for(state="visible")
            live(page)
            assert not page.locator("#key-form").is_visible()
            page.get_by_role("link", name="Chat", exact=True).click()
            settings(page, Most_tokens="3")
            send(page, "Hi")
            assert eventually(lambda: "tokens in" in page.locator("section [role=status]").inner_text())


def test_the_page_finds_a_server_again(browser):
    skip_without_binary_and_model()
    first = Server("--log-level", "warning", "--max-model-len", "512")
    with opened(browser, first, allowed="ERR_CONNECTION|ERR_INCOMPLETE|status of 503") as page:
        live(page)
        with limits_known(page):
            pass
        first.stop()
        page.get_by_text("Not connected").wait_for()
        again = Server("--log-level", "warning", "--max-model-len", "512", port=first.port)
        try:
            live(page)
        finally:
            again.stop()


def resident(server):
    """Bytes of the server's own memory."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1)) << 10


def test_readers_that_do_not_read_cost_no_memory(busy):
    def open_reader():
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", busy.port))
        reader.sendall(b"GET /dashboard/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return reader

    with load(busy):
        time.sleep(1)
        before = resident(busy)
        readers = [open_reader() for _ in range(300)]
        answers = 0
        end = time.monotonic() + 5
        while time.monotonic() < end:
            answer = httpx.post(busy.url + "/completions", json={"model": "smollm2", "prompt": "The sea", "max_tokens": 4}, timeout=30)
            assert answer.status_code == 200
            answers += 1
        assert answers >= 5
        assert resident(busy) - before < 32 << 20
        first = [reader.recv(15) for reader in readers]
        assert first.count(b"HTTP/1.1 200 OK") == 256 and first.count(b"HTTP/1.1 503 Se") == 44
        for reader in readers:
            reader.close()


def test_explanations_have_the_answers_numbers_and_change_none(busy):
    text = "The sea was calm that morning, and"
    body = {"model": "smollm2", "prompt": text, "max_tokens": 40, "temperature": 0, "logprobs": 5, "ignore_eos": True}
    before = httpx.post(busy.url + "/completions", json=body, timeout=60).json()["choices"][0]
    with load(busy):
        asked = []
        during = threading.Thread(target=lambda: asked.append(httpx.post(busy.url + "/completions", json=body, timeout=60).json()["choices"][0]))
        during.start()
        answers = 0
        while during.is_alive():
            explained = httpx.post(busy.base + "/dashboard/explain", json={"text": text, "layer": 5, "head": 1}, timeout=60)
            assert explained.status_code == 200, explained.text
            answers += 1
        during.join()
    assert answers >= 1
    assert asked[0]["text"] == before["text"] and asked[0]["logprobs"]["token_logprobs"] == before["logprobs"]["token_logprobs"]
    explained = explained.json()
    assert len(json.dumps(explained)) < 30_000
    assert abs(sum(explained["attention"]["weights"]) - 1) < 1e-3
    top = explained["top_tokens"][0]
    assert abs(math.log(top["probability"]) - before["logprobs"]["token_logprobs"][0]) < 1e-3


def test_it_can_be_switched_off():
    with served("--max-model-len", "512", "--no-dashboard") as plain:
        assert httpx.post(plain.base + "/dashboard/explain", json={"text": "The sea"}).status_code == 404
        for path in ("/dashboard", "/dashboard/app.js", "/dashboard/events"):
            assert httpx.get(plain.base + path).status_code == 404
