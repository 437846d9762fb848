"""The prefix cache over HTTP, across kill -9, and with a damaged folder."""

import signal
import threading
import time

import httpx

PREFIX = "You are a careful assistant who answers in one short sentence. " * 60  # about 700 tokens


def ask(server, text, salt=None):
    body = {"model": "smollm2", "prompt": text, "max_tokens": 12, "temperature": 0}
    if salt:
        body["cache_salt"] = salt
    answer = httpx.post(server.url + "/completions", json=body, timeout=60).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def learn_costs(server):
    """Computes prompts, so that the engine knows that loading their pages is faster."""
    for word in ("one", "two", "three"):
        ask(server, f"{word}, " * 150)


def test_a_prefix_is_computed_once_per_salt(start_server):
    server = start_server("--log-level", "warning")
    cold, found = ask(server, PREFIX + "What is the sea?")
    assert found == 0
    warm, found = ask(server, PREFIX + "What is the sea?")
    assert warm == cold and found > 600
    _, found = ask(server, PREFIX + "What is the moon?")
    assert found > 600
    salted, found = ask(server, PREFIX + "What is the sea?", salt="another tenant's")
    assert salted == cold and found == 0


def test_a_prefix_survives_kill_9_of_a_busy_server(start_server, tmp_path):
    flags = ("--cache-dir", str(tmp_path / "pages"), "--cache-size", "1GiB", "--log-level", "warning")
    server = start_server(*flags)
    questions = [PREFIX + f"What is number {i}?" for i in range(6)]
    right = [ask(server, q)[0] for q in questions]

    def load():
        try:
            for i in range(1000):
                ask(server, f"{i} " + PREFIX)
        except httpx.HTTPError:
            pass  # the server is gone

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    server.process.send_signal(signal.SIGKILL)
    for thread in threads:
        thread.join()

    again = start_server(*flags)
    learn_costs(again)
    for question, expected in zip(questions, right):
        text, found = ask(again, question)
        assert text == expected
        assert found > 600
    code, log = again.stop()
    assert code == 0, log


def test_warnings_about_the_cache_folder_are_logged_once(start_server, tmp_path):
    pages = tmp_path / "pages"
    flags = ("--cache-dir", str(pages), "--log-level", "warning")
    server = start_server(*flags)
    right, _ = ask(server, PREFIX)
    code, log = server.stop()
    assert code == 0 and str(pages) not in log, log
    damaged = sorted(pages.glob("*.page"))
    assert len(damaged) > 16
    for file in damaged:
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    (pages / "notes.txt").write_text("not a page")

    again = start_server(*flags)
    learn_costs(again)
    text, found = ask(again, PREFIX)
    assert text == right and found == 0
    code, log = again.stop()
    assert code == 0, log
    warnings = [line for line in log.splitlines() if str(pages) in line]
    assert sum("notes.txt is not a file of the cache" in line for line in warnings) == 1, log
    assert any("has a wrong checksum; it was removed" in line for line in warnings), log
    assert len(warnings) == len(set(warnings)) <= 17, log
