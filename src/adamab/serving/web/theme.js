// Runs before anything is drawn, so that the page does not flash in the wrong colours.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("adamab-theme");
  } catch {
    // Storage may be switched off; the system's choice will do.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
