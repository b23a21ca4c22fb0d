// The delimiters are those that pymdownx.arithmatex writes; typeset again after each page change.
window.MathJax = {
  tex: {
    inlineMath: [["\\(", "\\)"]],
    displayMath: [["\\[", "\\]"]],
    processEscapes: true,
  },
  options: { ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex" },
};

document$.subscribe(() => {
  const mathjax = window.MathJax;
  if (!mathjax.typesetPromise) return; // the first page is typeset as MathJax starts
  mathjax.startup.output.clearCache();
  mathjax.typesetClear();
  mathjax.texReset();
  mathjax.typesetPromise();
});
