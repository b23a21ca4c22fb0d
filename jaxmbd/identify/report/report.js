// The charts of a report: measured and predicted over time, with bands, and the residuals below.
(() => {
  "use strict";

  const { decode, ticks, written, roomy, stroke } = jaxmbdParts;
  const MEASURED = "#0072b2", PREDICTED = "#d55e00", DARK = "rgba(213, 94, 0, 0.42)", LIGHT = "#f6e3d6";
  const EDGE = "#eab48f";
  const AXIS = "#5d646e", GRID = "#e7e9ee", FONT = "11px system-ui, sans-serif";
  const edge = { left: 58, right: 10, top: 6, bottom: 22, gap: 22, share: 0.62 };
  const charts = [];

  const at = (x, i) => (typeof x === "number" ? x : x[i]);

  /** The first sample at or after a time. */
  function first(time, t) {
    let low = 0, high = time.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time[middle] < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  class Chart {
    constructor(figure, series, group) {
      this.figure = figure;
      this.series = series;
      this.group = group;
      this.canvas = figure.querySelector("canvas");
      this.output = figure.querySelector("output");
      this.here = null; // the sample whose numbers are told
      this.drawn = null; // what its picture shows
      this.drag = null; // the times between which the pointer was drawn
      const on = (name, call) => this.canvas.addEventListener(name, call);
      on("pointerdown", (event) => this.begin(event));
      on("pointermove", (event) => this.move(event));
      on("pointerup", () => this.end());
      on("pointercancel", () => this.end(true));
      on("pointerleave", () => this.drag || this.tell(null));
      on("dblclick", () => group.show(null));
      on("keydown", (event) => this.key(event));
    }

    /** What was measured. It is sent along only where rounding would lose it otherwise. */
    measured(i) {
      const { measured, predicted, error } = this.series;
      return measured ? measured[i] : predicted[i] - error[i];
    }

    /** The half width of the whole band at a sample. */
    width(i) {
      const { spread, noise } = this.series;
      return spread ? Math.hypot(spread[i], at(noise, i)) : at(noise, i);
    }

    timeAt(event) {
      const box = this.canvas.getBoundingClientRect();
      const [a, b] = this.group.span;
      const f = (event.clientX - box.left - edge.left) / (box.width - edge.left - edge.right);
      return a + Math.min(Math.max(f, 0), 1) * (b - a);
    }

    begin(event) {
      if (event.pointerType !== "mouse" || event.button !== 0) return;
      this.canvas.setPointerCapture(event.pointerId);
      this.drag = [this.timeAt(event), this.timeAt(event)];
    }

    move(event) {
      const t = this.timeAt(event);
      if (this.drag) this.drag[1] = t;
      const { time } = this.series, i = Math.min(first(time, t), time.length - 1);
      this.tell(i > 0 && t - time[i - 1] < time[i] - t ? i - 1 : i);
    }

    end(dropped = false) {
      const drag = this.drag && [...this.drag].sort((a, b) => a - b);
      this.drag = null;
      const [a, b] = this.group.span;
      if (!dropped && drag && drag[1] - drag[0] > 0.01 * (b - a)) this.group.show(drag);
      else this.draw();
    }

    key(event) {
      const [a, b] = this.group.span, { time } = this.series;
      const near = this.here ?? first(time, (a + b) / 2), t = time[Math.min(near, time.length - 1)];
      const step = event.shiftKey ? 20 : 1;
      if (event.key === "ArrowRight") this.tell(Math.min(near + step, time.length - 1));
      else if (event.key === "ArrowLeft") this.tell(Math.max(near - step, 0));
      else if (event.key === "+") this.group.show([t - (b - a) / 4, t + (b - a) / 4]);
      else if (event.key === "-") this.group.show([t - (b - a), t + (b - a)]);
      else if (event.key === "0" || event.key === "Escape") this.group.show(null);
      else return;
      event.preventDefault();
    }

    /** Tell the numbers of a sample. */
    tell(i) {
      this.here = i;
      const { time, predicted, error, spread, noise } = this.series;
      let text = "";
      if (i !== null) {
        const known = Number.isFinite(error[i]);
        text = `${time[i].toPrecision(6)} s: `;
        text += known ? `measured ${this.measured(i).toPrecision(6)}, ` : "not measured, ";
        text += `predicted ${predicted[i].toPrecision(6)}`;
        if (spread) text += ` ± ${spread[i].toPrecision(2)} (parameters)`;
        text += ` ± ${at(noise, i).toPrecision(2)} (noise)`;
        if (known) text += `, residual ${error[i].toPrecision(3)}`;
      }
      this.output.textContent = text;
      this.draw();
    }

    /** Draw the chart, and over it the sample that is told and the span that is chosen. */
    draw() {
      const { canvas } = this, width = canvas.clientWidth, height = canvas.clientHeight;
      if (!width) return;
      const ratio = Math.max(window.devicePixelRatio || 1, 2); // sharp on paper too
      const [a, b] = this.group.span, drawn = [width, height, ratio, a, b].join(" ");
      const right = width - edge.right;
      const x = (t) => edge.left + ((t - a) / (b - a)) * (right - edge.left);
      if (this.drawn !== drawn) {
        this.picture = document.createElement("canvas");
        this.picture.width = canvas.width = width * ratio;
        this.picture.height = canvas.height = height * ratio;
        this.heights = this.base(this.picture.getContext("2d"), width, height, ratio, x);
        this.drawn = drawn;
      }
      const g = canvas.getContext("2d");
      g.setTransform(1, 0, 0, 1, 0, 0);
      g.clearRect(0, 0, canvas.width, canvas.height);
      g.drawImage(this.picture, 0, 0);
      g.scale(ratio, ratio);
      const { time, error } = this.series, i = this.here;
      if (i !== null && time[i] >= a && time[i] <= b) {
        g.strokeStyle = g.fillStyle = "#22262c";
        stroke(g, [[x(time[i]), edge.top], [x(time[i]), height - edge.bottom]]);
        [this.measured(i), error[i]].forEach((value, k) => {
          if (Number.isFinite(value)) g.fillRect(x(time[i]) - 3, this.heights[k](value) - 3, 6, 6);
        });
      }
      if (this.drag) {
        g.fillStyle = "rgba(0, 114, 178, 0.15)";
        const [s, t] = this.drag.map(x);
        g.fillRect(Math.min(s, t), edge.top, Math.abs(s - t), height - edge.top - edge.bottom);
      }
    }

    /** The chart alone. Returns the heights of readings and of residuals. */
    base(g, width, height, ratio, x) {
      g.scale(ratio, ratio);
      const { time, predicted } = this.series, [a, b] = this.group.span;
      const split = edge.top + edge.share * (height - edge.top - edge.bottom - edge.gap);
      const begin = Math.max(first(time, a) - 1, 0), end = Math.min(first(time, b) + 2, time.length);
      const upper = this.panel(g, edge.top, split, begin, end, x, (i) => predicted[i], true);
      const low = this.panel(g, split + edge.gap, height - edge.bottom, begin, end, x, () => 0, false);
      g.font = FONT;
      g.fillStyle = AXIS;
      g.textAlign = "center";
      g.textBaseline = "top";
      const [places, digits] = ticks(a, b, Math.max(Math.floor(width / 130), 2));
      const most = width - edge.right - 14;
      for (const t of places) {
        g.fillText(`${t.toFixed(digits)} s`, Math.min(x(t), most), height - edge.bottom + 6);
      }
      return [upper, low];
    }

    /** Readings with their bands around `middle`, or residuals, between two heights. Returns the
     * height of a value. Samples closer than a pixel are drawn by the least and the largest. */
    panel(g, top, bottom, begin, end, x, middle, readings) {
      const { time, error, spread, predicted } = this.series;
      const pixels = new Map(), dense = end - begin > 1.5 * (this.canvas.clientWidth - edge.left);
      const [motion, dots, wide] = [[Infinity, -Infinity], [Infinity, -Infinity], [Infinity, -Infinity]];
      for (let i = begin; i < end; i++) {
        const key = dense ? Math.round(x(time[i])) : i;
        let p = pixels.get(key);
        if (!p) {
          p = { x: x(time[i]), line: [Infinity, -Infinity], dark: [Infinity, -Infinity],
            light: [Infinity, -Infinity], dots: [Infinity, -Infinity] };
          pixels.set(key, p);
        }
        const m = middle(i), w = this.width(i), s = spread ? spread[i] : 0;
        const y = readings ? this.measured(i) : error[i];
        grow(p.line, m, m);
        if (Number.isFinite(s)) grow(p.dark, m - s, m + s);
        if (Number.isFinite(w)) grow(p.light, m - w, m + w);
        grow(p.dots, y, y);
        grow(motion, m, m);
        grow(dots, y, y);
        if (Number.isFinite(w)) grow(wide, m - w, m + w);
      }
      let [low, high] = shownRange(motion, dots, wide);
      [low, high] = roomy(low, high);
      const y = (v) => bottom - ((v - low) / (high - low)) * (bottom - top);
      g.save();
      g.font = FONT;
      g.fillStyle = AXIS;
      g.strokeStyle = GRID;
      g.lineWidth = 1;
      g.textAlign = "right";
      g.textBaseline = "middle";
      const [places, digits] = ticks(low, high, readings ? 7 : 5);
      for (const v of places) {
        stroke(g, [[edge.left, y(v)], [this.canvas.clientWidth - edge.right, y(v)]]);
        g.fillText(written(v, low, high, digits), edge.left - 6, y(v));
      }
      g.beginPath();
      g.rect(edge.left, top - 1, this.canvas.clientWidth - edge.right - edge.left, bottom - top + 2);
      g.clip();
      const all = [...pixels.values()];
      band(g, all, "light", LIGHT, y);
      // Dots show on bands and edges, but so many of them as pixels would hide these.
      const over = () => {
        edges(g, all, "light", y);
        if (spread) band(g, all, "dark", DARK, y);
      };
      if (!dense) over();
      g.fillStyle = MEASURED;
      for (const p of all) {
        const [least, most] = p.dots;
        if (least <= most) g.fillRect(p.x - 1.2, y(most) - 1.2, 2.4, y(least) - y(most) + 2.4);
      }
      if (dense) over();
      g.strokeStyle = PREDICTED;
      g.lineWidth = readings ? 1.2 : 1;
      const points = all.filter((p) => p.line[0] <= p.line[1])
        .flatMap((p) => (p.line[0] === p.line[1] ? [[p.x, y(p.line[0])]] : p.line.map((v) => [p.x, y(v)])));
      stroke(g, points);
      g.restore();
      return y;
    }
  }

  function grow(range, low, high) {
    if (low < range[0]) range[0] = low;
    if (high > range[1]) range[1] = high;
  }

  /** The range to show: of predictions and measurements, but not of predictions that left all
   * bounds, and of bands that are not so wide that they make the motion flat. */
  function shownRange(motion, dots, wide) {
    const size = ([low, high]) => (high >= low ? high - low : 0);
    const range = [...dots];
    if (!size(dots) || size(motion) < 20 * size(dots)) grow(range, ...motion);
    if (size(wide) < 4 * size(range)) grow(range, ...wide);
    return range;
  }

  /** The stretches that have a band, as lists of pixels. */
  function stretches(pixels, name) {
    const found = [[]];
    for (const p of pixels) {
      if (p[name][0] <= p[name][1]) found[found.length - 1].push(p);
      else if (found[found.length - 1].length) found.push([]);
    }
    return found;
  }

  function band(g, pixels, name, color, y) {
    g.fillStyle = color;
    for (const run of stretches(pixels, name)) {
      g.beginPath();
      for (const p of run) g.lineTo(p.x, y(p[name][1]));
      for (const p of run.reverse()) g.lineTo(p.x, y(p[name][0]));
      g.fill();
    }
  }

  /** The edges of a band, which many dots would hide. */
  function edges(g, pixels, name, y) {
    g.strokeStyle = EDGE;
    g.lineWidth = 1;
    for (const run of stretches(pixels, name)) {
      for (const k of [0, 1]) stroke(g, run.map((p) => [p.x, y(p[name][k])]));
    }
  }

  /** The charts of one record, which show the same span of time. */
  class Group {
    constructor(time) {
      this.whole = [time[0], time[time.length - 1]];
      this.span = this.whole;
      this.charts = [];
    }

    show(span) {
      const [a, b] = this.whole;
      const inside = span && [Math.max(span[0], a), Math.min(span[1], b)];
      this.span = inside && inside[1] > inside[0] ? inside : this.whole;
      for (const chart of this.charts) chart.draw();
    }
  }

  async function start() {
    const data = await decode(document.getElementById("jaxmbd-content").textContent);
    // Charts are drawn when they come into view.
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        charts.find((chart) => chart.figure === entry.target).draw();
      }
    }, { rootMargin: "400px" });
    for (const record of document.querySelectorAll(".record")) {
      let group = null;
      for (const figure of record.querySelectorAll(".series")) {
        const series = data.series[Number(figure.dataset.series)];
        group = group || new Group(series.time);
        const chart = new Chart(figure, series, group);
        group.charts.push(chart);
        charts.push(chart);
        seen.observe(figure);
      }
      record.addEventListener("toggle", () => group && group.show(null));
    }
    const all = () => charts.forEach((chart) => chart.draw());
    window.addEventListener("resize", all);
    window.addEventListener("beforeprint", () => {
      for (const folded of document.querySelectorAll("details")) folded.open = true;
      all();
    });
    window.jaxmbdReport = { charts, ready: true };
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
