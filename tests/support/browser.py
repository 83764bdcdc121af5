"""A real browser without a window: Debian's Chromium, driven by the machine's own chromedriver."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.deployment import PATIENCE_S

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # it refuses to run as root with one
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--lang=en-GB",
)

ACCESSIBILITY = Path(__file__).with_name("accessibility.js").read_text(encoding="utf-8")


@contextmanager
def browsing(directory: Path) -> Iterator["Browser"]:
    """A browser with its profile in this directory; where the machine has none the test is skipped, but not in CI."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        missing = "chromium and chromedriver are not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    options = ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*OPTIONS, f"--user-data-dir={directory}"):
        options.add_argument(option)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("no_proxy", "127.0.0.1,localhost")  # straight to the driver, whatever proxy there is
        chrome = Chrome(options, Service(driver))
        try:
            yield Browser(chrome)
        finally:
            chrome.quit()


class Browser:
    """What a person does with a page, and what they find there."""

    def __init__(self, driver: Chrome) -> None:
        self._driver = driver

    @property
    def address(self) -> str:
        """Where it is."""
        return self._driver.current_url

    def open(self, address: str, width: int = 1280, height: int = 1000, dark: bool = False) -> None:
        """Load a page afresh, in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self._driver.get("about:blank")
        self.complaints()
        self._driver.get(address)

    @contextmanager
    def in_zone(self, zone: str) -> Iterator[None]:
        """As a reader in this time zone has it."""
        self._driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
        try:
            yield
        finally:
            self._driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})

    def back(self) -> None:
        """To the page before."""
        self._driver.back()

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """The elements that a CSS selector finds."""
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The only one."""
        (found,) = self.all(selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """The text of each, with ordinary spaces; read at once, for the page may change meanwhile."""
        script = "return [...document.querySelectorAll(arguments[0])].map(found => found.innerText.trim())"
        return [text.replace("\u00a0", " ") for text in self.run(script, selector)]

    def text(self, selector: str) -> str:
        """The text of the only one."""
        (found,) = self.texts(selector)
        return found

    def numbers(self, selector: str) -> list[float]:
        """The values of the `data` elements among them."""
        script = "return [...document.querySelectorAll(arguments[0])].map(found => found.value)"
        return [float(value) for value in self.run(script, selector)]

    def fill(self, fields: Mapping[str, object]) -> None:
        """Fill in fields, by selectors, in place of what they hold."""
        for selector, value in fields.items():
            self.one(selector).clear()
            self.one(selector).send_keys(str(value))

    def click(self, selector: str) -> None:
        """Click the only one."""
        self.one(selector).click()

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        self._driver.switch_to.active_element.send_keys(*keys)

    def tab_to(self, selector: str, most: int = 60) -> None:
        """Go there by the Tab key alone; at each step one must see where one is."""
        for _ in range(most):
            self.press(Keys.TAB)
            seen = "const {outlineStyle, outlineWidth} = getComputedStyle(document.activeElement);" + (
                "return document.activeElement.checkVisibility() && outlineStyle !== 'none' && outlineWidth !== '0px'"
            )
            assert self.run(seen), self.run("return document.activeElement.outerHTML.slice(0, 200)")
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
        raise AssertionError(f"{most} steps do not lead to {selector}")

    def until(self, true: Callable[[], object]) -> None:
        """Wait for something to come true."""
        try:
            WebDriverWait(self._driver, PATIENCE_S, poll_frequency=0.05).until(lambda _: true())
        except TimeoutException:
            raise AssertionError(f"the condition did not come true; the page contains: {self.text('body')}") from None

    def complaints(self) -> list[str]:
        """The errors in the console of the browser since the last call."""
        return [entry["message"] for entry in self._driver.get_log("browser")]  # type: ignore[no-untyped-call]

    def barriers(self) -> list[str]:
        """What is in the way of who cannot see the page, or sees it badly."""
        return list(self.run(ACCESSIBILITY))

    def overflow(self) -> float:
        """By how many pixels the page is wider than the window."""
        return float(self.run("return document.documentElement.scrollWidth - window.innerWidth"))
