// Before the first paint: the theme that was chosen, and what is shown where the app cannot be loaded.
const root = document.documentElement;

try {
  const theme = localStorage.getItem("headroom.theme");
  if (theme) root.dataset.theme = theme;
} catch {
  // Storage is blocked: the system's colours, then.
}

// A link asks for another answer than the one that stands in the page.
if (location.hash.length > 1 || location.search) root.dataset.link = "";

function failed() {
  if (root.dataset.state !== "loading") return;
  root.dataset.state = "unloaded";
  // what stands there is to be read, if no more
  document.getElementById("app")?.removeAttribute("inert");
}
addEventListener("error", failed, true);
addEventListener("unhandledrejection", failed);

addEventListener("click", ({ target }) => {
  const { act } = target.dataset;
  if (act === "reload") location.reload();
  if (act === "afresh") location.assign(location.pathname);
});
