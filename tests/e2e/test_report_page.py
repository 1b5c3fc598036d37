"""The report in a real browser: light, dark, on a phone, by keyboard; nothing in the console, nothing requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from planted import TellingProbe, arms, report

from kvbacking.measure.host import HostGate, HostState


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def saving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = report(arms(0, raw=0.93), gates={"raw": {"same text": True, "same words": True}})
    return made.write(tmp_path_factory.mktemp("saving"))["report.html"]


@pytest.fixture(scope="module")
def unscored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    planted = arms(0, raw=1.1)
    planted[3].path = "copy"
    gate = HostGate(TellingProbe([HostState(load_1m=9.5, cpus=8, thermal="serious")]))
    return report(planted, gate=gate).write(tmp_path_factory.mktemp("unscored"))["report.html"]


DEVICES = [("light", 1280, 900), ("dark", 1280, 900), ("light", 390, 844), ("dark", 390, 844)]


@pytest.mark.parametrize("kind", ["saving", "unscored"])
@pytest.mark.parametrize(("scheme", "width", "height"), DEVICES)
def test_the_page_is_whole_on_every_device(
    browser: Browser, request: pytest.FixtureRequest, kind: str, scheme: str, width: int, height: int
) -> None:
    browser.show(request.getfixturevalue(kind), width=width, height=height, scheme=scheme)
    browser.screenshot(f"report-{kind}-{scheme}-{width}")
    assert browser.complaints() == []
    assert len(browser.requests()) == 1, "the page itself and nothing else"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    assert browser.evaluate("window.innerWidth") == width
    # Text may only be cut off where its region scrolls.
    cut = browser.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,p,dd,dt,li,summary')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll')).length"
    )
    assert cut == 0
    small = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height))"
    )
    assert small >= 8, f"figure text is {small} px high"


def test_the_colours_follow_the_preference(browser: Browser, saving: Path) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        browser.show(saving, width=1280, height=900, scheme=scheme)
        seen[scheme] = {
            "body": browser.evaluate("getComputedStyle(document.body).backgroundColor"),
            "ink": browser.evaluate("getComputedStyle(document.querySelector('svg text')).fill"),
        }
    assert seen["light"]["body"] != seen["dark"]["body"]
    assert seen["light"]["ink"] != seen["dark"]["ink"], "figures must follow too"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser: Browser, saving: Path, scheme: str) -> None:
    browser.show(saving, width=1280, height=900, scheme=scheme)
    low = browser.evaluate(_CONTRAST)
    assert low == [], "text below 4.5 : 1"


def test_the_verdict_comes_first_and_is_one_heading(browser: Browser, saving: Path) -> None:
    browser.show(saving, width=390, height=844, scheme="light")
    assert browser.evaluate("document.querySelectorAll('h1').length") == 1
    assert browser.evaluate("document.querySelector('h1').textContent") == "raw: saving shown; surface: no saving shown"
    order = browser.evaluate("[...document.querySelectorAll('h2')].map(e => e.textContent)")
    assert order == [
        "Evidence",
        "Time",
        "Intervals",
        "Paired differences",
        "Memory",
        "Placement",
        "Environment",
        "Limits",
    ]
    assert browser.evaluate("document.querySelector('.verdict').getBoundingClientRect().top") < 844


def test_everything_is_reached_by_keyboard(browser: Browser, saving: Path) -> None:
    browser.show(saving, width=1280, height=900, scheme="light")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "visible when focused"
    wanted = browser.evaluate("document.querySelectorAll('summary, [tabindex=\"0\"]').length")
    reached = set()
    for _ in range(wanted + 1):
        browser.press("Tab")
        reached.add(
            browser.evaluate(
                "[...document.querySelectorAll('summary, [tabindex=\"0\"]')].indexOf(document.activeElement)"
            )
        )
    assert reached - {-1} == set(range(wanted))


def test_figures_and_regions_have_names(browser: Browser, saving: Path) -> None:
    browser.show(saving, width=1280, height=900, scheme="light")
    assert browser.evaluate("document.querySelectorAll('svg[role=img]').length") == 4
    nameless = browser.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].filter(e => e.getAttribute('aria-labelledby').split(' ')"
        ".some(id => !document.getElementById(id)?.textContent.trim())).length"
    )
    assert nameless == 0
    assert browser.evaluate("[...document.querySelectorAll('[role=region]')].every(e => e.ariaLabel)")
    duplicates = browser.evaluate(
        "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
    )
    assert duplicates == 0


# Every visible text node against the nearest opaque background, by the WCAG formula.
_CONTRAST = """(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const lum = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] };
  const low = new Set();
  for (const e of document.querySelectorAll('body *:not(svg *)')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    const a = lum(parse(getComputedStyle(e).color)), b = lum(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.add(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return [...low];
})()"""
