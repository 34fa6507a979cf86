"""Users and rights are managed on the page by an administrator."""

from __future__ import annotations

from penstock.broker_core.client.flight import Client

from .pages import Page

EVIL = "<img src=x onerror=window.pwned=1>"


def test_a_user_is_added_permitted_and_removed(page: Page, client: Client) -> None:
    page.open("users")
    page.click("Add…", "main")
    page.type("dialog input[name=user]", EVIL)
    page.type("dialog input[name=password]", "geheim")
    page.click("Add", "dialog")
    page.shows(f"Rights of {EVIL}", "dialog")
    page.type("dialog input[name=pattern]", f"{EVIL}*")
    page.js("document.querySelector('dialog input[value=browse]').click()")
    page.click("Set these rights", "dialog")
    page.shows("has browse on", "#notes")
    rights = {user["user"]: user["rights"] for user in client.call("user.list")["users"]}
    assert rights[EVIL] == {f"{EVIL}*": ["browse"]}
    page.until(lambda: EVIL in page.text("main td"))
    remove = "[...document.querySelectorAll('main button')].find((b) => b.ariaLabel === `Remove… ${arguments[0]}`)"
    page.browser.click(page.until(lambda: page.js(remove, "root")))
    page.click("Remove", "dialog")
    page.shows("no user would have the right admin on everything", "dialog [role=alert]")
    page.click("Cancel", "dialog")
    page.browser.click(page.until(lambda: page.js(remove, EVIL)))
    page.shows("loses its rights on 1 pattern", "dialog")
    page.click("Remove", "dialog")
    page.shows("is removed", "#notes")
    assert EVIL not in [user["user"] for user in client.call("user.list")["users"]]
    assert page.js("window.pwned") is None
