// Where the page begins: the list of runs, or one run.
import { drawing, fill, keepToken, make, page, takeToken } from "./parts.js";
import { list } from "./list.js";
import { RunPage } from "./run.js";

const main = document.getElementById("page");

/** Show why nothing can be shown; without a token, ask for it. */
function stop(error) {
  document.title = "dagrun";
  const token = make("input", { type: "password", id: "token", autocomplete: "off" });
  const form = make("form", { submit: (event) => { event.preventDefault(); keepToken(token.value.trim()); location.reload(); } },
    make("label", { for: "token" }, "The token, which the command has printed: "), token, make("button", { type: "submit" }, "Look"));
  fill(main, make("p", make("a", { href: page(".") }, "All runs")), make("h1", error.message), error.status === 401 ? form : "");
}

takeToken();
const found = /\/r\/([^/]+)$/.exec(location.pathname);
const shown = found ? new RunPage(main, found[1]).follow() : location.pathname.endsWith("/metrics") ? drawing(`metrics/table${location.search}`).then((table) => fill(main, table)) : list(main);
shown.catch(stop);
