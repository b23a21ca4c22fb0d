// What the scripts of all pages share: reading the content of `content.py`, elements, and what plots
// consist of.
const jaxmbdParts = (() => {
  "use strict";

  const kinds = {
    "<f4": Float32Array, "<f8": Float64Array, "|u1": Uint8Array, "<u2": Uint16Array,
    "<u4": Uint32Array, "|i1": Int8Array, "<i2": Int16Array, "<i4": Int32Array,
  };

  async function decode(text) {
    const binary = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([binary]).stream().pipeThrough(new DecompressionStream("gzip"));
    const buffer = await new Response(stream).arrayBuffer();
    const length = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    const arrays = header.arrays.map(
      ([kind, start, count]) => new kinds[kind](buffer, 4 + length + start, count),
    );
    const fill = (x) => {
      if (Array.isArray(x)) return x.map(fill);
      if (x === null || typeof x !== "object") return x;
      if ("__array__" in x) return arrays[x.__array__];
      return Object.fromEntries(Object.entries(x).map(([k, v]) => [k, fill(v)]));
    };
    return fill(header);
  }

  const element = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name in node) node[name] = value;
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };

  /** Round numbers between two others, and how many digits after the point they need. */
  function ticks(low, high, count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    const out = [];
    for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * step; x += step) out.push(x);
    return [out, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
  }

  /** A number at an axis from `low` to `high`. */
  function written(x, low, high, digits) {
    const big = Math.max(Math.abs(low), Math.abs(high)) >= 1e5 || digits > 5;
    return big ? x.toExponential(1) : x.toFixed(digits);
  }

  /** Bounds with some room around what lies between them, also if that is a single number. */
  function roomy(low, high) {
    if (!(high >= low)) return [0, 1];
    const least = 1e-6 * Math.max(Math.abs(low), Math.abs(high), 1e-3);
    const room = Math.max(0.06 * (high - low), least);
    return [low - room, high + room];
  }

  function stroke(g, points) {
    g.beginPath();
    for (const [x, y] of points) g.lineTo(x, y);
    g.stroke();
  }

  return { decode, element, ticks, written, roomy, stroke };
})();
