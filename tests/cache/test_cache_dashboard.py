"""The dashboard in a real Chromium, over a real service."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cache_kit import eventually
from dashboard_kit import Compiler, Screen, launched
from service_kit import Service

from cache_server.manifest import Failure
from cache_server.service.gate import Scope
from cache_server.storage import open_storage
from cache_server.trust.tokens import TokenBook
from neuron_runtime.compiler.errors import FailureKind

pytestmark = pytest.mark.fleet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

Serve = Callable[..., Service]
Open = Callable[..., Screen]

MARKUP = "<script>document.title='taken over'</script><img src=x onerror=\"document.title='taken over'\">"
ENDLESS = "no_blank_anywhere_" * 11

# The least contrast of any text that shows, by WCAG's formula, and the text that has it.
CONTRAST = """() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    const layers = [];
    for (let it = element; it; it = it.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(it).backgroundColor);
      if (a > 0) layers.push([r, g, b, a]);
      if (a === 1) break;
    }
    const over = (under, [r, g, b, a]) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
    return layers.reverse().reduce(over, [0, 0, 0]);
  };
  let worst = [21, ""];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((it) => it.nodeType === 3 && it.data.trim());
    if (!own || !element.checkVisibility() || element.closest("svg, .skip, noscript")) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < worst[0]) worst = [contrast, element.textContent.slice(0, 80)];
  }
  return worst;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from launched()


@pytest.fixture
def screen(serve: Serve, browser: Browser) -> Iterator[Open]:
    """Opens pages; at the end of the test, none may have complained or asked another host for anything."""
    opened: list[tuple[Screen, Service, str]] = []

    def open_page(service: Service, *, allowed: str = "", **options: Any) -> Screen:
        new = Screen(browser, **options)
        opened.append((new, service, allowed))
        new.open(service)
        return new

    yield open_page
    for each, service, allowed in opened:
        complaints = [line for line in each.errors if not (allowed and re.search(allowed, line))]
        requests = list(each.requests)
        each.close()
        assert complaints == []
        assert all(url.startswith(f"{service.url}/") for url in requests), requests
        assert requests


def state(page: Page, wanted: str) -> None:
    page.wait_for_selector(f"body[data-state={wanted}]")


def said(place: Locator) -> list[str]:
    """The lines of a part of the page."""
    return [line for line in place.inner_text().splitlines() if line.strip()]


def test_an_empty_cache_says_what_to_type(serve: Serve, screen: Open) -> None:
    service = serve()
    page = screen(service).page
    state(page, "live")
    welcome = page.locator("#welcome")
    assert welcome.is_visible()
    text = welcome.inner_text()
    assert f"export NEURON_ENV_CACHE_URL={service.url}\n" in text
    assert "neuron-env compile" in text
    assert not page.locator("#rest").is_visible()


def test_a_compile_shows_while_it_runs_and_its_hits_afterwards(serve: Serve, screen: Open, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    service = serve()
    page = screen(service).page
    state(page, "live")
    compiler = Compiler(service, tmp_path / "served")
    assert compiler.look().status == 404
    compiler.begin("llama/decode", host="trn2-017")
    row = page.locator("#flight tbody tr")
    expect(row).to_have_count(1)
    assert not page.locator("#welcome").is_visible()
    text = row.inner_text()
    assert "llama/decode" in text
    assert f"default · {compiler.key[:12]}" in text
    assert "pid 4711 on trn2-017 (user train)" in text
    age = row.locator("[data-name=For]")
    assert re.fullmatch(r"\d+ s", age.inner_text())
    before = age.inner_text()
    expect(age).not_to_have_text(before)
    waiter = compiler.wait()
    expect(row.locator("[data-name=Waiting]")).to_have_text("1")
    expect(page.locator("#tile-flight .sub")).to_contain_text("1 process waiting")
    element = row.element_handle()
    compiler.beat("linking")
    expect(row.locator(".phase")).to_have_text("linking")
    assert page.evaluate("(row) => row.isConnected", element)
    compiler.publish(seconds=147_700.0, label="llama/decode")
    waiter.join()
    expect(row).to_have_count(0)
    assert page.locator("#flight-nothing").is_visible()
    for _ in range(3):
        assert compiler.look().status == 200
    expect(page.locator("#tile-rate .big")).to_have_text("75 %")
    expect(page.locator("#tile-rate .sub")).to_contain_text("3 of 4 lookups in the last hour")
    assert said(page.locator("#tile-saved"))[1:] == ["5.1 days", "of compiling saved", "3 compiles avoided"]
    chart = page.locator("#chart svg")
    assert chart.get_attribute("aria-label") == "Hit rate over the last hour: 75 % of 4 lookups."
    assert [cell.inner_text() for cell in page.locator("#namespaces tbody tr > *").all()][:4] == [
        "default",
        "75 %",
        "5.1 days",
        "3",
    ]


def test_an_owner_that_falls_silent_is_told_of(serve: Serve, screen: Open, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    service = serve()
    page = screen(service).page
    Compiler(service, tmp_path / "served").begin(lease_seconds=5.0)
    expect(page.locator("#flight .silent")).to_have_text(re.compile(r"^no sign of life for \d+ s$"))


def test_what_the_store_says_is_text_and_never_markup(serve: Serve, screen: Open, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    service = serve()
    page = screen(service).page
    compiler = Compiler(service, tmp_path / "served")
    compiler.begin(MARKUP, host=MARKUP)
    compiler.beat(MARKUP[:100])
    expect(page.locator("#flight .label")).to_have_text(MARKUP)
    assert f"pid 4711 on {MARKUP} (user train)" in page.locator("#flight tbody tr").inner_text()
    message = f"error: {MARKUP}\n  at line 3\n"
    compiler.fail(Failure(FailureKind.COMPILER_ERROR, message, time.time() + 3600), label=MARKUP)
    failure = page.locator("#failures li")
    expect(failure).to_have_count(1)
    assert not failure.locator("pre").is_visible()
    summary = failure.locator("summary")
    summary.focus()
    page.keyboard.press("Enter")
    expect(failure.locator("pre")).to_be_visible()
    assert failure.locator("pre").text_content() == message
    assert failure.locator(".label").text_content() == MARKUP
    # It stays open, and the keyboard stays there, when numbers move.
    compiler.look()
    expect(page.locator("#tile-rate .big")).to_have_text("100 %")
    assert failure.locator("pre").is_visible()
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert "taken over" not in page.title()
    assert page.locator("main script, main img").count() == 0


def test_nothing_on_the_page_can_make_markup_of_text(serve: Serve, screen: Open) -> None:
    page = screen(serve(), allowed="TrustedHTML|Content Security Policy").page
    state(page, "live")
    refused = page.evaluate("() => { try { document.body.innerHTML = '<b>x</b>'; } catch (e) { return e.name; } }")
    assert refused == "TypeError"


def test_a_service_that_dies_leaves_old_numbers_that_say_so(serve: Serve, screen: Open, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    service = serve()
    page = screen(service, allowed="net::ERR_").page
    Compiler(service, tmp_path / "served").look()
    expect(page.locator("#tile-rate .big")).to_have_text("0 %")
    service.kill()
    state(page, "stale")
    banner = page.locator("#banner")
    expect(banner).to_have_text(re.compile(r"^The service does not answer\. The numbers are those of \d\d:\d\d:\d\d; "))
    expect(page.locator(".pill")).to_have_text(re.compile(r"^No answer for \d+ s$"))
    assert page.locator("#tile-rate .big").inner_text() == "0 %"
    again = serve(tmp_path / "served", "--listen", service.url.removeprefix("http://"))
    state(page, "live")
    assert not banner.is_visible()
    assert page.locator(".pill").inner_text() == "Live"
    compiler = Compiler(again, tmp_path / "served")
    compiler.begin()
    compiler.publish()
    compiler.look()
    expect(page.locator("#tile-rate .big")).to_have_text("100 %")


def test_a_service_that_drains_says_so(serve: Serve, screen: Open) -> None:
    service = serve(None, "--drain-delay", "60")
    page = screen(service).page
    state(page, "live")
    service.terminate()
    state(page, "draining")
    assert "gives no new leases" in page.locator("#banner").inner_text()


def token(store: Path, scope: Scope, *namespaces: str) -> tuple[str, Callable[[], None]]:
    """A new token for all namespaces or those named, and what revokes it."""
    book = TokenBook(open_storage(str(store)).store.backend)
    limits = frozenset(namespaces) or None
    made, record = book.create("tester", scope, limits, now=time.time(), created_by="tester")
    return made.reveal(), lambda: book.revoke(record.token_id, now=time.time())


def test_a_token_is_asked_for_kept_in_the_tab_and_forgotten_when_refused(
    serve: Serve, screen: Open, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    store = tmp_path / "served"
    everything, _ = token(store, Scope.WRITE)
    mine, revoke = token(store, Scope.READ, "team-a")
    service = serve(store, "--anonymous", "none")
    for name in ("team-a", "team-b"):
        Compiler(service, store, namespace=name, token=everything).look()
        Compiler(service, store, graph="other", namespace=name, token=everything).begin(f"graph of {name}")
    opened = screen(service, allowed="401")
    page = opened.page
    form = page.locator("#token")
    expect(form).to_be_visible()
    state(page, "locked")
    assert page.evaluate("document.activeElement.id") == "token-field"
    assert page.locator("#token-title").inner_text() == "This service wants a token"
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_contain_text("The service did not take this token: ")
    assert page.evaluate("sessionStorage.length") == 0
    page.locator("#token-field").fill("with blanks")
    page.keyboard.press("Enter")
    expect(page.locator("#token-error")).to_contain_text("no blanks")
    page.locator("#token-field").fill(mine)
    page.keyboard.press("Enter")
    state(page, "live")
    assert not form.is_visible()
    # What the token may not read is not there.
    expect(page.locator("#namespaces tbody th")).to_have_text(["team-a"])
    expect(page.locator("#flight .label")).to_have_text(["graph of team-a"])
    assert "team-b" not in page.content()
    page.reload()
    state(page, "live")
    assert page.evaluate("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert not any(mine in url for url in opened.requests)
    revoke()
    state(page, "locked")
    assert form.is_visible()
    assert page.evaluate("sessionStorage.length") == 0
    assert "graph of team-a" not in page.content()


def fill(service: Service, store: Path) -> None:
    """One of everything, with names that no line can break."""
    done, failed, running = (Compiler(service, store, graph) for graph in ("a", "b", "c"))
    for compiler in (done, failed, running):
        compiler.look()
        compiler.begin(ENDLESS, host=ENDLESS)
    done.publish(label=ENDLESS)
    failed.fail(Failure(FailureKind.COMPILER_ERROR, ENDLESS * 5, time.time() + 3600), label=ENDLESS)
    done.look()
    other = Compiler(service, store, "d", namespace="x" * 60)
    other.look()


def test_the_page_fits_every_screen_and_can_be_read_on_it(serve: Serve, screen: Open, tmp_path: Path) -> None:
    service = serve()
    fill(service, tmp_path / "served")
    page = screen(service, reduced_motion="reduce").page
    page.locator("#failures summary").click()
    page.locator("#chart-figures summary").click()
    for width in (320, 390, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        contrast, text = page.evaluate(CONTRAST)
        assert contrast >= 4.5, (scheme, text)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        red = int(re.findall(r"\d+", ground)[0])
        assert red > 200 if scheme == "light" else red < 60


def test_a_reader_finds_tables_and_no_motion_on_a_phone(serve: Serve, screen: Open, tmp_path: Path) -> None:
    service = serve()
    fill(service, tmp_path / "served")
    page = screen(service, width=390, reduced_motion="reduce").page
    page.locator("#flight tbody tr").wait_for()
    moving = "getComputedStyle(document.querySelector('.pill'), '::before').animationName"
    assert page.evaluate(moving) == "none"
    table = page.get_by_role("table", name="Compiling now")
    assert table.get_by_role("columnheader").count() == 5
    assert table.get_by_role("rowheader").count() == 1


def test_namespaces_are_filtered_by_name(serve: Serve, screen: Open, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    service = serve()
    for name in ("team-a", "team-b", "ci"):
        Compiler(service, tmp_path / "served", namespace=name).look()
    page = screen(service).page
    rows = page.locator("#namespaces tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_label("Filter").fill("TEAM")
    expect(rows).to_have_count(2)
    assert [row.get_by_role("rowheader").inner_text() for row in rows.all()] == ["team-a", "team-b"]
    page.get_by_label("Filter").fill("<b>")
    expect(page.locator("#namespaces-nothing")).to_have_text("None of the 3 namespaces has “<b>” in its name.")


def test_the_page_asks_on_and_mostly_gets_nothing_new(serve: Serve, screen: Open) -> None:
    service = serve()
    opened = screen(service, hurry=False)
    state(opened.page, "live")
    opened.page.wait_for_event("response", lambda answer: answer.status == 304)
    asked = [url for url in opened.requests if "/v1/stats" in url]
    assert len(asked) >= 2


def document(**more: Any) -> dict[str, Any]:
    """Statistics as `/v1/stats` gives them, for what takes a day or another process to happen."""
    now = int(time.time()) // 60 * 60
    return {
        "version": "1.0",
        "uptime_seconds": 90_000.0,
        "replica": "r1",
        "store": {"url": "s3://bucket", "leases": False, "reachable": True},
        "draining": False,
        "totals": {
            "entries": 7,
            "failures": 0,
            "bytes": 75 << 30,
            "capacity_bytes": 100 << 30,
            "reserved_bytes": 1 << 30,
        },
        "namespaces": {
            "a": {"hits": 90, "misses": 10, "compiles_avoided": 90, "seconds_saved": 147_700.0, "entries": 7}
            | {"failures": 0, "bytes": 75 << 30, "quota_bytes": 80 << 30, "evictions": 2, "evicted_bytes": 3 << 20}
        },
        "requests": {"answered": 5, "errors": 0, "hits": 90, "misses": 10},
        "in_flight": [],
        "in_flight_total": 0,
        "waiters": 0,
        "recent_failures": [],
        "recent_evictions": [
            {"at": now - 60, "namespace": "a", "key": "e" * 64, "label": MARKUP, "bytes": 3 << 20, "reason": "capacity"}
        ],
        "history": [{"at": now - 60 * i, "hits": 9, "misses": 1} for i in range(1439, -1, -1)],
        **more,
    }


def test_sizes_evictions_and_a_day_of_history(serve: Serve, screen: Open) -> None:
    from playwright.sync_api import expect

    page = screen(serve()).page
    page.route("**/v1/stats*", lambda route: route.fulfill(json=document()))
    expect(page.locator("#chart-title")).to_have_text("Hit rate, the last 24 hours")
    label = page.locator("#chart svg").get_attribute("aria-label") or ""
    assert label.startswith("Hit rate over the last 24 hours: 90 % of 14,")
    size = page.locator("#tile-size")
    assert said(size)[1:] == ["75 GiB", "75 % of 100 GiB", "7 entries · 1 GiB arriving"]
    assert page.evaluate("document.querySelector('#tile-size .used').style.width") == "75%"
    eviction = page.locator("#evictions li")
    assert eviction.locator(".label").text_content() == MARKUP
    assert "capacity" in eviction.inner_text()
    assert "3 MiB" in eviction.inner_text()
    assert page.locator("#namespaces tbody [data-name=Size]").inner_text().strip() == "75 GiB of 80 GiB"
    assert page.locator("#namespaces tbody [data-name=Evicted]").inner_text() == "2 · 3 MiB"
    assert "may compile twice" in page.locator("#health").inner_text()
    page.locator("#chart-figures summary").click()
    assert page.locator("#chart-figures tbody tr").count() == 12


def test_a_store_that_does_not_answer_is_told_apart_from_the_service(serve: Serve, screen: Open) -> None:
    page = screen(serve()).page
    down = document(store={"url": "s3://bucket", "leases": True, "reachable": False})
    page.route("**/v1/stats*", lambda route: route.fulfill(json=down))
    state(page, "sick")
    assert page.locator("#banner").inner_text().startswith("The store at s3://bucket does not answer")


def test_another_replica_behind_the_same_address_brings_its_own_history(serve: Serve, screen: Open) -> None:
    from playwright.sync_api import expect

    page = screen(serve()).page
    page.route("**/v1/stats*", lambda route: route.fulfill(json=document(), headers={"ETag": 'W/"1"'}))
    expect(page.locator("#tile-rate .sub")).to_contain_text("of 600 lookups in the last hour")
    now = int(time.time()) // 60 * 60
    other = document(replica="r2", history=[{"at": now, "hits": 1, "misses": 1}])
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(json=other, headers={"ETag": 'W/"2"'})

    page.unroute("**/v1/stats*")
    page.route("**/v1/stats*", answer)
    expect(page.locator("#tile-rate .sub")).to_contain_text("1 of 2 lookups in the last hour")
    eventually(lambda: page.wait_for_timeout(50) or len(asked) > 1, "it asks again")
    assert asked[1].endswith("since=0")


WORDS = {
    "amount(59.9)": "59 s",
    "amount(90)": "1 min",
    "amount(147700)": "41 h",
    "amount(9000)": "2.5 h",
    "amount(12 * 86400)": "12 days",
    "amount(NaN)": "–",
    "percent(0.99999)": "99.9 %",
    "percent(0.0001)": "0.1 %",
    "percent(1)": "100 %",
    "percent(null)": "–",
    "bytes(1023)": "1,023 B",
    "bytes(1536)": "1.5 KiB",
    "bytes(96 * 2 ** 30)": "96 GiB",
    "running(59.9)": "59 s",
    "running(125)": "2 min 05 s",
    "running(4020)": "1 h 07 min",
    "ago(3)": "just now",
    "ago(7300)": "2 h ago",
    "counted(1, 'entry', 'entries')": "1 entry",
    "counted(2000, 'entry', 'entries')": "2,000 entries",
}


def test_numbers_are_said_as_people_say_them(serve: Serve, screen: Open) -> None:
    page = screen(serve()).page
    state(page, "live")
    script = "async (calls) => { const words = await import('/dashboard/words.js'); return [%s]; }"
    calls = ", ".join(f"words.{call}" for call in WORDS)
    assert dict(zip(WORDS, page.evaluate(script % calls, []), strict=True)) == WORDS
