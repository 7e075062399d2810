// Sets the theme before the first paint, so that the other one does not flash. `src/lib/theme.ts` has the switch.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem('icecore.theme');
  } catch (unavailable) {
    // Without storage, use the system's theme.
  }
  if (chosen !== 'light' && chosen !== 'dark') chosen = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  document.documentElement.dataset.theme = chosen;
})();
