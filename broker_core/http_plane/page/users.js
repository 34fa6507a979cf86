// Users and their rights, read-only. `penstock user` and `penstock permit` change them.

import {call} from "./api.js";
import {badge, h, replace, table} from "./dom.js";

const POLL_S = 10;

export function show(root, poll) {
  const list = h("div", {});
  replace(root,
    h("section", {class: "panel"}, h("div", {class: "title"}, h("h2", {}, "Users"), h("span", {class: "muted small"}, "Read only: change them with penstock user and penstock permit")), list));
  const refresh = poll.every(POLL_S, async (signal) => {
    let listing;
    try {
      listing = await call("user.list", {}, signal);
    } catch (error) {
      if (error.status !== 403) throw error;
      replace(list, h("p", {class: "empty"}, error.message));
      return;
    }
    replace(list, table([["User"], ["Logs in with"], ["Queues"], ["Rights"]], listing.users.flatMap((user) => {
      const ways = [user.password && "password", ...user.certificates.map((name) => `certificate ${name}`)].filter(Boolean).join(", ") || "nothing";
      const rights = Object.entries(user.rights);
      return (rights.length ? rights : [["–", []]]).map(([queue, granted], at) => [
        at ? "" : h("b", {}, user.user), at ? "" : ways, h("code", {}, queue), h("span", {}, granted.flatMap((right) => [badge(right, right === "admin" ? "warn" : ""), " "])),
      ]);
    }), listing.enforced ? "No users." : "There are no users: every client may do everything."));
  });
  return {title: "Users", refresh};
}
