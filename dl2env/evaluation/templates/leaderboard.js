// Charts of the board, drawn from the JSON element "board-data".
(function () {
  var data = JSON.parse(document.getElementById("board-data").textContent);
  var views = new Map(data.views.map(function (view) { return [view.name, view]; }));
  var select = document.getElementById("view"), chosen = null, NUM_COLOURS = 10;
  var DASHES = ["", "6 3", "2 3"], SVG = "http://www.w3.org/2000/svg";  // a name, nothing is fetched

  function svg(name, attributes, children) {
    var element = document.createElementNS(SVG, name);
    Object.keys(attributes || {}).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    (children || []).forEach(function (child) { element.append(child); });
    return element;
  }

  function html(name, attributes, children) {
    var element = document.createElement(name);
    Object.keys(attributes || {}).forEach(function (key) { element.setAttribute(key, attributes[key]); });
    (children || []).forEach(function (child) { element.append(child); });
    return element;
  }

  function number(value) {
    return value >= 100 ? value.toFixed(0) : value >= 10 ? String(+value.toFixed(1)) : String(+value.toPrecision(3));
  }

  // Ticks of a log axis: 1, 2, 5 of each decade, or even steps where that gives too few.
  function ticks(low, high) {
    var found = [];
    for (var e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      [1, 2, 5].forEach(function (m) { var t = m * Math.pow(10, e); if (t >= low && t <= high) found.push(t); });
    }
    if (found.length >= 3) return found.length > 8 ? found.filter(function (t) { return /^1/.test(t.toExponential()); }) : found;
    var step = Math.pow(10, Math.floor(Math.log10((high - low) / 3)));
    while ((high - low) / step > 6) step *= 2;
    found = [];
    for (var t = Math.ceil(low / step) * step; t <= high; t += step) found.push(+t.toPrecision(6));
    return found;
  }

  function drawIntervals(view) {
    var box = document.getElementById("intervals");
    document.getElementById("intervals-figure").hidden = !view.ratios.length;
    box.replaceChildren();
    if (!view.ratios.length) return;
    var limits = ["bound", "search"].filter(function (name) { return name in view.limits; });
    document.getElementById("limits-hint").hidden = !limits.length;
    var width = Math.max(280, box.clientWidth), row = 20, top = limits.length ? 20 : 8;
    var longest = Math.max.apply(null, view.shown.map(function (label) { return label.length; }));
    var left = Math.min(7 * longest + 16, 0.42 * width), right = 12, height = top + row * view.labels.length + 28;
    var all = view.ratios.flat().filter(function (x) { return x !== null; }).concat([1], Object.values(view.limits));
    var low = Math.min.apply(null, all) / 1.03, high = Math.max.apply(null, all) * 1.03;
    function x(value) {
      return left + (width - left - right) * (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low));
    }
    var label = "Mean JCT over that of " + data.reference + " with 95 % intervals, " + view.name + "; the tables have the numbers";
    var drawing = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height, role: "img", "aria-label": label });
    ticks(low, high).forEach(function (t) {
      drawing.append(svg("line", { class: "axis", x1: x(t), x2: x(t), y1: top, y2: height - 22 }));
      drawing.append(svg("text", { class: "tick", x: x(t), y: height - 8, "text-anchor": "middle" }, [number(t)]));
    });
    drawing.append(svg("line", { class: "one", x1: x(1), x2: x(1), y1: top, y2: height - 22 }));
    // The bound is never above the search, so their names do not meet.
    limits.forEach(function (name) {
      var at = x(view.limits[name]), isBound = name === "bound" && limits.length > 1;
      drawing.append(svg("line", { class: "limit " + name, x1: at, x2: at, y1: top - 8, y2: height - 22 },
        [svg("title", {}, [name + ": " + view.limits[name]])]));
      drawing.append(svg("text", { class: "limit-name", x: at + (isBound ? -3 : 3), y: 11, "text-anchor": isBound ? "end" : "start" }, [name]));
    });
    view.shown.forEach(function (name, k) {
      var r = view.ratios[k], y = top + row * (k + 0.5), bounded = r[1] !== null;
      var group = svg("g", { class: bounded && r[2] < 1 ? "better" : bounded && r[1] > 1 ? "worse" : "tied" });
      var limit = Math.floor((left - 12) / 6.6), text = name.length > limit ? name.slice(0, limit - 1) + "…" : name;
      group.append(svg("title", {}, [name + ": " + r[0] + (bounded ? " [" + r[1] + ", " + r[2] + "]" : "") + (view.ranks[k] === null ? ", an oracle" : ", rank " + view.ranks[k])]));
      group.append(svg("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, [text]));
      if (bounded) group.append(svg("line", { class: "interval", x1: x(r[1]), x2: x(r[2]), y1: y, y2: y }));
      group.append(svg("circle", { class: "point", cx: x(r[0]), cy: y, r: 4 }));
      drawing.append(group);
    });
    box.append(drawing);
  }

  function style(place) {
    return { colour: "var(--c" + (place % NUM_COLOURS) + ")", dash: DASHES[Math.floor(place / NUM_COLOURS) % DASHES.length] };
  }

  // Colours go to the curves shown, in the order of the view.
  function shownCurves(view) {
    return view.labels.filter(function (label) { return chosen.has(label); });
  }

  function drawCdf(view) {
    var box = document.getElementById("cdf"), figure = document.getElementById("cdf-figure");
    figure.hidden = !view.quantiles;
    if (!view.quantiles) return;
    box.replaceChildren();
    var shown = shownCurves(view), width = Math.max(280, box.clientWidth), height = 320;
    var left = 40, right = 12, top = 8, bottom = 28;
    var curves = shown.map(function (label) { return view.quantiles[view.labels.indexOf(label)]; });
    var all = (curves.length ? curves : view.quantiles).flat().filter(function (q) { return q > 0; });
    var low = Math.min.apply(null, all), high = Math.max.apply(null, all);
    if (high <= low) { low /= 2; high *= 2; }
    function x(q) {
      return left + (width - left - right) * (Math.log(Math.max(q, low)) - Math.log(low)) / (Math.log(high) - Math.log(low));
    }
    function y(share) { return top + (height - top - bottom) * (1 - share); }
    var drawing = svg("svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height, role: "img",
      "aria-label": "Distribution of job completion times, " + view.name + ": " + shown.join(", ") });
    ticks(low, high).forEach(function (t) {
      drawing.append(svg("line", { class: "axis", x1: x(t), x2: x(t), y1: top, y2: height - bottom }));
      drawing.append(svg("text", { class: "tick", x: x(t), y: height - 10, "text-anchor": "middle" }, [number(t)]));
    });
    [0, 0.25, 0.5, 0.75, 1].forEach(function (share) {
      drawing.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(share), y2: y(share) }));
      drawing.append(svg("text", { class: "tick", x: left - 6, y: y(share) + 4, "text-anchor": "end" }, [String(share)]));
    });
    curves.forEach(function (curve, place) {
      var points = curve.map(function (q, i) { return x(q).toFixed(1) + "," + y(data.levels[i]).toFixed(1); });
      var look = style(place);
      drawing.append(svg("polyline", { class: "curve", points: points.join(" "), stroke: look.colour, "stroke-dasharray": look.dash },
        [svg("title", {}, [shown[place]])]));
    });
    box.append(drawing);
    document.querySelectorAll("#cdf-legend label").forEach(function (label) {
      var place = shown.indexOf(label.dataset.label), swatch = label.querySelector(".swatch");
      swatch.style.borderTopColor = place < 0 ? "transparent" : style(place).colour;
      swatch.style.borderTopStyle = place >= NUM_COLOURS ? "dashed" : "solid";
    });
  }

  function fillLegend(view) {
    var legend = document.getElementById("cdf-legend");
    legend.querySelectorAll("label").forEach(function (label) { label.remove(); });
    view.labels.forEach(function (name, k) {
      var box = html("input", { type: "checkbox" });
      box.checked = chosen.has(name);
      box.addEventListener("change", function () {
        if (box.checked) chosen.add(name); else chosen.delete(name);
        drawCdf(view);
      });
      legend.append(html("label", { "data-label": name }, [box, html("span", { class: "swatch" }), view.shown[k]]));
    });
  }

  function drawWins(view) {
    var head = html("tr", {}, [html("td")].concat(view.shown.map(function (name) {
      return html("th", { scope: "col" }, [html("span", {}, [name])]);
    })));
    var rows = view.shown.map(function (name, i) {
      return html("tr", {}, [html("th", { scope: "row" }, [name])].concat(view.shown.map(function (other, j) {
        if (i === j) return html("td", { class: "muted" }, ["–"]);
        var verdict = view.better[i][j] ? "fill-good" : view.better[j][i] ? "fill-bad" : "";
        var meaning = verdict === "" ? "tie" : verdict === "fill-good" ? "better" : "worse";
        return html("td", { class: verdict, title: name + " against " + other + ": wins " + view.wins[i][j] + " % (" + meaning + ")" },
          [String(view.wins[i][j])]);
      })));
    });
    var table = html("table", {}, [html("caption", { class: "visually-hidden" }, ["Win matrix, " + view.name]),
      html("thead", {}, [head]), html("tbody", {}, rows)]);
    document.getElementById("wins").replaceChildren(table);
  }

  function show() {
    var view = views.get(select.value);
    if (!chosen) chosen = new Set(view.labels.slice(0, 5).concat([data.reference, "optimus"]));
    fillLegend(view);
    drawIntervals(view);
    drawCdf(view);
    drawWins(view);
    document.getElementById("view-hint").hidden = Boolean(view.quantiles);
    // The table below follows, if it has that scenario.
    var filter = document.querySelector('[data-controls="cells"] [data-filter="scenario"]');
    if (filter) {
      var known = Array.from(filter.options).some(function (option) { return option.value === view.name; });
      filter.value = known ? view.name : "";
      filter.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }

  data.views.forEach(function (view) { select.append(html("option", {}, [view.name])); });
  document.getElementById("charts").hidden = false;
  // The choice is part of the address, so that a link can lead to a scenario.
  var wanted = "";
  try { wanted = decodeURIComponent(location.hash.replace(/^#show=/, "")); } catch (error) { /* a stray % */ }
  if (views.has(wanted)) select.value = wanted;
  select.addEventListener("input", function () {
    history.replaceState(null, "", "#show=" + encodeURIComponent(select.value));
    show();
  });
  show();
  var waiting = 0;
  window.addEventListener("resize", function () {
    clearTimeout(waiting);
    waiting = setTimeout(function () { var view = views.get(select.value); drawIntervals(view); drawCdf(view); }, 150);
  });
})();
