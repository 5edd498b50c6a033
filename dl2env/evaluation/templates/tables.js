"use strict";
// Tables of class "sortable": heads become buttons, and the controls in front of a table hide its rows.
(function () {
  function key(row, column, kind) {
    var cell = row.cells[column];
    var text = cell.hasAttribute("data-value") ? cell.getAttribute("data-value") : cell.textContent.trim();
    if (kind !== "number") return text.toLowerCase();
    return text === "" ? NaN : Number(text);
  }

  function compare(a, b, kind) {
    if (kind !== "number") return a.localeCompare(b, "en", { numeric: true });
    return a - b;
  }

  function sort(table, column, descending) {
    var heads = table.tHead.rows[0].cells, kind = heads[column].dataset.sort, body = table.tBodies[0];
    var rows = Array.from(body.rows).map(function (row, i) { return { row: row, key: key(row, column, kind), i: i }; });
    rows.sort(function (a, b) {
      // Missing numbers stay at the end in both directions.
      var missing = Number(kind === "number" && isNaN(a.key)) - Number(kind === "number" && isNaN(b.key));
      if (missing) return missing;
      if (kind === "number" && isNaN(a.key)) return a.i - b.i;
      return (descending ? -1 : 1) * compare(a.key, b.key, kind) || a.i - b.i;
    });
    rows.forEach(function (item) { body.appendChild(item.row); });
    Array.from(heads).forEach(function (head, i) {
      if (i === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  function makeSortable(table) {
    if (!table.tHead) return;
    Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
      if (!head.dataset.sort) return;
      var button = document.createElement("button");
      button.type = "button";
      button.append.apply(button, Array.from(head.childNodes));
      if (head.title) button.setAttribute("aria-description", head.title);
      head.append(button);
      button.addEventListener("click", function () {
        var now = head.getAttribute("aria-sort");
        sort(table, column, now ? now === "ascending" : head.hasAttribute("data-descending"));
      });
    });
  }

  function makeFilter(controls) {
    var table = document.getElementById(controls.dataset.controls);
    var search = controls.querySelector("[data-search]");
    var selects = Array.from(controls.querySelectorAll("[data-filter]"));
    function apply() {
      var words = search ? search.value.toLowerCase().split(/\s+/).filter(Boolean) : [], shown = 0;
      Array.from(table.tBodies[0].rows).forEach(function (row) {
        var text = row.textContent.toLowerCase();
        var fits = words.every(function (word) { return text.includes(word); }) && selects.every(function (select) {
          return !select.value || row.getAttribute("data-filter-" + select.dataset.filter) === select.value;
        });
        row.hidden = !fits;
        shown += Number(fits);
      });
      controls.querySelector("output").textContent = shown + " of " + table.tBodies[0].rows.length + " rows";
    }
    controls.addEventListener("input", apply);
    controls.hidden = false;
    apply();
  }

  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("[data-controls]").forEach(makeFilter);
  window.dl2envTables = { makeSortable: makeSortable, sort: sort };
})();
