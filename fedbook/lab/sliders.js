// ipywidgets gives the handle of a slider and the buttons of a player no name, and a logarithmic slider says its exponent.
// Each handle gets its label as name and its readout as value, for as long as it stands on the page.
if (!window.fedbookSliders) {
  const mend = slider => {
    const handle = slider.querySelector('[role=slider]'), readout = slider.querySelector('.widget-readout');
    const label = slider.querySelector('.widget-label');
    if (!handle || !readout || !label || handle.hasAttribute('aria-label')) return;
    handle.setAttribute('aria-label', label.textContent);
    const say = () => {
      if (handle.getAttribute('aria-valuetext') !== readout.textContent) {
        handle.setAttribute('aria-valuetext', readout.textContent);
      }
    };
    const observer = new MutationObserver(say);
    observer.observe(readout, {childList: true, characterData: true, subtree: true});
    observer.observe(handle, {attributes: true, attributeFilter: ['aria-valuetext']});
    say();
  };
  const buttons = ['Play or pause', 'Stop', 'Repeat'];
  const all = () => {
    document.querySelectorAll('.widget-slider').forEach(mend);
    document.querySelectorAll('.widget-play').forEach(player => player.querySelectorAll('button').forEach(
      (button, i) => button.hasAttribute('aria-label') || button.setAttribute('aria-label', buttons[i])));
  };
  window.fedbookSliders = new MutationObserver(all);
  window.fedbookSliders.observe(document.body, {childList: true, subtree: true});
  all();
}
