"use strict";
// A click on a header sorts a table, first in ascending order, then in descending order. Cells without a
// value stay at the end.
for (const table of document.querySelectorAll("table.cases")) {
  const body = table.tBodies[0];
  const headers = [...table.tHead.rows[0].cells];
  const names = new Intl.Collator("en", { numeric: true });
  const compare = (a, b, direction) => {
    const [x, y] = [a.dataset.value, b.dataset.value];
    if (a.tagName === "TH") return direction * names.compare(a.textContent, b.textContent);
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return direction * (Number(x) - Number(y));
  };
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    header.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const order = header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      headers.forEach((other) => other.setAttribute("aria-sort", "none"));
      header.setAttribute("aria-sort", order);
      const direction = order === "ascending" ? 1 : -1;
      const rows = [...body.rows];
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], direction));
      body.append(...rows);
    });
  });
}
// On paper, nothing can be unfolded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((details) => (details.open = true));
});
addEventListener("afterprint", () => folded.forEach((details) => (details.open = false)));
