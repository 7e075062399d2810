// Before anything is drawn, so that no theme flashes in the other one's colours. `src/lib/theme.ts` has the switch.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem('icecore.theme');
  } catch (unavailable) {
    // Without storage the system's theme is shown.
  }
  if (chosen !== 'light' && chosen !== 'dark') chosen = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  document.documentElement.dataset.theme = chosen;
})();
