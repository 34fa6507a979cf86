// Users and their rights.

import {call, may} from "./api.js";
import {ask, field} from "./dialog.js";
import {badge, h, replace, table} from "./dom.js";
import {plural} from "./format.js";

const POLL_S = 10;
const RIGHTS = [
  ["send", "send messages"], ["receive", "receive and settle messages"], ["browse", "view messages"], ["replay", "view settled messages"],
  ["settle", "settle for others"], ["admin", "declare, alter, purge, delete; on * also users and the audit log"],
];

const plain = {spellcheck: "false", autocapitalize: "none"};

export function show(root, poll) {
  const list = h("div", {});
  const add = h("button", {class: "small", hidden: true, onclick: () => password(null)}, "Add…");
  replace(root, h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Users"), h("span", {class: "spring"}), add), list));

  // Add a user, or change the password of `user`.
  function password(user) {
    const name = h("input", {name: "user", value: user, readonly: user !== null, required: true, autocomplete: "off", ...plain});
    const secret = h("input", {name: "password", type: "password", required: true, autocomplete: "new-password"});
    ask({
      title: user === null ? "Add a user" : `Change the password of ${user}`,
      content: [h("div", {class: "row"}, field("User", name), field("Password", secret)), user !== null && h("p", {class: "muted"}, "Its connections end, and log in again with the new password.")].filter(Boolean),
      label: user === null ? "Add" : "Change it",
      act: async () => {
        await call("user.add", {user: name.value, password: secret.value, replace: user !== null});
        refresh();
        if (user === null) permit(name.value, "", []);
        return user === null ? `User ${name.value} is added, without rights.` : `The password of ${user} is changed.`;
      },
    });
  }

  function permit(user, pattern, granted) {
    const name = h("input", {name: "pattern", value: pattern, readonly: pattern !== "", required: true, placeholder: "orders, orders.* or *", autocomplete: "off", ...plain});
    const boxes = RIGHTS.map(([right, meaning]) => h("label", {class: "choice"}, h("input", {type: "checkbox", name: "right", value: right, checked: granted.includes(right)}), h("b", {}, right), h("p", {}, meaning)));
    ask({
      title: `Rights of ${user}`,
      content: [field("On queues and exchanges with this name; * is any text", name), h("div", {class: "rights"}, boxes)],
      label: "Set these rights",
      act: async (form) => {
        const rights = form.getAll("right");
        await call("user.setRights", {user, pattern: name.value.trim(), rights});
        refresh();
        return `${user} has ${rights.join(", ") || "no right"} on ${name.value.trim()}.`;
      },
    });
  }

  function remove({user, rights}) {
    ask({
      title: `Remove the user ${user}?`,
      content: [h("p", {}, `${user} loses its rights on ${plural(Object.keys(rights).length, "pattern")}, and its connections end. Queues and messages stay.`)],
      label: "Remove",
      danger: true,
      act: async () => {
        await call("user.remove", {user});
        refresh();
        return `User ${user} is removed.`;
      },
    });
  }

  function rows(user) {
    const ways = [user.password && "password", ...user.certificates.map((name) => `certificate ${name}`)].filter(Boolean).join(", ") || "nothing";
    const rights = Object.entries(user.rights);
    const button = (label, act, kind = "") => h("button", {class: `small ${kind}`, "aria-label": `${label} ${user.user}`, onclick: act}, label);
    const own = h("span", {class: "buttons"},
      button("Permit…", () => permit(user.user, "", [])), " ",
      ways !== "nothing" && [button("Password…", () => password(user.user)), " ", button("Remove…", () => remove(user), "danger")]);
    return (rights.length ? rights : [["–", []]]).map(([queue, granted], at) => [
      at ? "" : h("b", {}, user.user), at ? "" : ways, h("code", {}, queue),
      h("span", {}, granted.flatMap((right) => [badge(right, right === "admin" ? "warn" : ""), " "]),
        granted.length ? h("button", {class: "plain small", "aria-label": `Change the rights of ${user.user} on ${queue}`, onclick: () => permit(user.user, queue, granted)}, "Change…") : ""),
      at ? "" : own,
    ]);
  }

  if (!may("admin")) {
    replace(list, h("p", {class: "empty"}, "To see the users you need the right admin on everything."));
    return {title: "Users", refresh: () => {}};
  }
  const refresh = poll.every(POLL_S, async (signal) => {
    const listing = await call("user.list", {}, signal);
    add.hidden = !listing.enforced;
    replace(list, table([["User"], ["Logs in with"], ["Queues"], ["Rights"], ["", "number"]], listing.users.flatMap(rows),
      listing.enforced ? "No users." : "There are no users: every client may do everything. Add the first one on the broker's machine: penstock user add NAME"));
  });
  return {title: "Users", refresh};
}
