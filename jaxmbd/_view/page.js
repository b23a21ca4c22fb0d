// The controls of the page. viser's client draws the scene. Where it would connect to a server, this
// script answers in place of the server: it sends the scene, then the poses of the current time, and
// receives clicks and the camera.
(() => {
  "use strict";

  const { decode, element, ticks, written, roomy, stroke } = jaxmbdParts;
  const RealWorker = window.Worker;
  let client = null; // the connection of viser's client
  let data = null; // the decoded content
  let connected = false;

  // viser's client writes its server into the address, which files and frames do not allow.
  for (const name of ["replaceState", "pushState"]) {
    const original = history[name].bind(history);
    history[name] = (...args) => {
      try {
        original(...args);
      } catch {
        // The address stays as it is.
      }
    };
  }

  // The client talks to its server through a worker, which says `set_server` first. Other workers
  // are started as usual.
  window.Worker = class extends EventTarget {
    constructor(...args) {
      super();
      this.args = args;
      this.held = [];
      this.real = null;
      this.standsIn = false;
      this.onmessage = null;
    }

    postMessage(message, transfer) {
      if (this.real) return this.real.postMessage(message, transfer);
      const type = message && message.type;
      if (type === "set_server") {
        this.standsIn = true;
        client = this;
        connect();
      } else if (this.standsIn) {
        if (type === "send") receive(message.message);
        if (type === "close" && client === this) client = null;
      } else if (type === "zstd_wasm") {
        this.held.push([message, transfer]);
      } else {
        this.start();
        this.real.postMessage(message, transfer);
      }
    }

    start() {
      this.real = new RealWorker(...this.args);
      this.real.onmessage = (event) => this.emit(event.data);
      for (const args of this.held) this.real.postMessage(...args);
    }

    emit(message) {
      const event = new MessageEvent("message", { data: message });
      if (this.onmessage) this.onmessage(event);
      this.dispatchEvent(event);
    }

    terminate() {
      if (this.real) this.real.terminate();
    }
  };

  /** A message about a node of the scene. */
  const told = (type, name, rest) => ({ type, name, owner: "", ...rest });

  const send = (messages) => {
    if (client && messages.length) client.emit({ type: "message_batch", messages });
  };

  function connect() {
    if (!data || !client) return;
    client.emit({ type: "connected" });
    const bindings = [{ button: "left", modifier: null }];
    const clicks = data.runs.flatMap((run) => Object.keys(run.owners))
      .map((name) => told("SetSceneNodeClickBindingsMessage", name, { bindings }));
    // Copies, since the client keeps what it is given.
    send(structuredClone(data.messages).concat(arrowNodes(), trailNodes(), clicks));
    connected = true;
    applyGroups();
    draw();
  }

  // --- the state of the page ---------------------------------------------------------------------

  const state = {
    time: 0, playing: false, speed: 1, follow: null, selected: null, arrowScale: 1,
    shown: {}, hiddenRuns: new Set(), trails: new Set(), kind: null, hiddenCurves: new Set(),
  };
  const origin = [0, 0, 0];
  let camera = null;
  let shift = origin;

  const moving = () => data.pictures > 1;

  /** Position of a time among the pictures: number of the one before, and the fraction to the next. */
  function place(time) {
    if (!moving()) return [0, 0];
    const x = ((time - data.start) / (data.end - data.start)) * (data.pictures - 1);
    const i = Math.min(Math.max(Math.floor(x), 0), data.pictures - 2);
    return [i, Math.min(Math.max(x - i, 0), 1)];
  }

  /** Linear interpolation of `size` numbers of a row of an array. */
  function row(array, size, time, offset = 0, stride = size) {
    const [i, f] = place(time);
    const out = new Array(size);
    for (let k = 0; k < size; k++) {
      const a = array[i * stride + offset + k];
      out[k] = f === 0 ? a : a + f * (array[(i + 1) * stride + offset + k] - a);
    }
    return out;
  }

  const bodyOf = (run, name) => run.bodies.findIndex((body) => body.name === name);

  /** World pose of body `i` of a run: position and quaternion. The last one is the ground. */
  function pose(run, i, time) {
    if (i === run.bodies.length - 1) return [origin, [1, 0, 0, 0]];
    const x = row(run.poses, 7, time, 7 * i, 7 * (run.bodies.length - 1));
    const p = x.slice(3);
    const norm = Math.hypot(...p);
    return [x.slice(0, 3), p.map((c) => c / norm)];
  }

  function rotate([w, x, y, z], [a, b, c]) {
    const u = 2 * (y * c - z * b), v = 2 * (z * a - x * c), s = 2 * (x * b - y * a);
    return [
      a + w * u + (y * s - z * v), b + w * v + (z * u - x * s), c + w * s + (x * v - y * u),
    ];
  }

  const point = ([position, p], local) => rotate(p, local).map((c, k) => c + position[k]);

  /** The quaternion that turns z into the direction from a to b, as `toward` in scene.py. */
  function toward(a, b) {
    const d = b.map((c, k) => c - a[k]);
    const length = Math.hypot(...d);
    const [x, y, z] = length > 0 ? d.map((c) => c / length) : [0, 0, 1];
    if (z < -1 + 1e-9) return [0, 1, 0, 0];
    const p = [1 + z, -y, x, 0], norm = Math.hypot(...p);
    return p.map((c) => c / norm);
  }

  // --- what is sent to the client at a time --------------------------------------------------------

  function arrowNodes() {
    const color = { "contact forces": [176, 65, 62], "joint forces": [79, 157, 105] };
    return data.runs.flatMap((run) => run.arrows).map(({ node, group }) => {
      const props = {
        points: new Float32Array(6), colors: new Uint8Array(color[group]), scale: 1,
        shaft_radius: 0.09 * data.size, head_radius: 0.22 * data.size, head_length: 0.5 * data.size,
      };
      return told("ArrowMessage", node, { virtual: false, props });
    });
  }

  const trailName = (i) => `${data.runs[0].root}/trail${i}`;

  function trailNodes() {
    return data.centers.map((_, i) => {
      const props = {
        points: new Float32Array(6), colors: new Uint8Array([59, 110, 168]),
        thickness: 2, scale: 1, thickness_units: "screen",
      };
      return told("LineSegmentsMessage", trailName(i), { virtual: false, props });
    });
  }

  const update = (name, updates) => told("SceneNodeUpdateMessage", name, { updates });
  const visible = (name, on) => told("SetSceneNodeVisibilityMessage", name, { visible: on });
  const placed = (name, position) => told("SetPositionMessage", name, { position });
  const isShown = (group) => state.shown[group] !== false;

  function arrowPoints(run, arrows, time) {
    const vectors = row(arrows.vectors, 3 * arrows.count, time);
    const tails = arrows.tails ? row(arrows.tails, 3 * arrows.count, time) : null;
    const scale = arrows.scale * state.arrowScale;
    const points = [];
    for (let n = 0; n < arrows.count; n++) {
      const v = vectors.slice(3 * n, 3 * n + 3).map((c) => c * scale);
      if (Math.hypot(...v) < 1e-3 * data.length) continue;
      let tail;
      if (tails) tail = tails.slice(3 * n, 3 * n + 3);
      else {
        const [body, ...local] = arrows.on[n];
        tail = point(pose(run, body, time), local);
      }
      points.push(...tail, ...tail.map((c, k) => c + v[k]));
    }
    return new Float32Array(points);
  }

  function trailPoints(i, time) {
    const run = data.runs[0];
    const most = 400;
    const steps = Math.max(1, Math.min(most, Math.ceil(place(time)[0] + place(time)[1])));
    const points = [];
    for (let n = 0; n <= steps; n++) {
      const t = data.start + ((time - data.start) * n) / steps;
      const here = point(pose(run, i, t), data.centers[i]);
      // Each point but the first and the last ends one piece and begins the next.
      points.push(...here, ...(n > 0 && n < steps ? here : []));
    }
    return new Float32Array(points);
  }

  function draw() {
    if (!data) return;
    const time = state.time, messages = [];
    shift = origin;
    if (state.follow !== null) {
      const local = data.centers[state.follow];
      const now = point(pose(data.runs[0], state.follow, time), local);
      const first = point(pose(data.runs[0], state.follow, state.followFrom), local);
      shift = now.map((c, k) => first[k] - c);
    }
    messages.push(placed(data.world, shift));
    for (const run of data.runs) {
      if (state.hiddenRuns.has(run.name)) continue;
      for (let i = 0; i < run.bodies.length - 1; i++) {
        const [position, wxyz] = pose(run, i, time), name = run.bodies[i].node;
        messages.push(placed(name, position), told("SetOrientationMessage", name, { wxyz }));
      }
      for (const link of run.links) {
        const ends = link.ends.map(([body, ...x]) => point(pose(run, body, time), x));
        const wxyz = toward(...ends);
        ends.forEach((position, bone_index) => {
          messages.push(told("SetBoneOrientationMessage", link.node, { bone_index, wxyz }));
          messages.push(told("SetBonePositionMessage", link.node, { bone_index, position }));
        });
      }
      for (const arrows of run.arrows) {
        if (!isShown(arrows.group)) continue;
        const points = arrowPoints(run, arrows, time);
        messages.push(visible(arrows.node, points.length > 0));
        if (points.length) messages.push(update(arrows.node, { points }));
      }
    }
    data.centers.forEach((_, i) => {
      const on = state.trails.has(i) && time > data.start;
      messages.push(visible(trailName(i), on));
      if (on) messages.push(update(trailName(i), { points: trailPoints(i, time) }));
    });
    if (connected) send(messages);
    showTime();
  }

  function applyGroups() {
    const messages = [];
    for (const run of data.runs) {
      messages.push(visible(run.root, !state.hiddenRuns.has(run.name)));
      for (const [group, nodes] of Object.entries(run.groups)) {
        for (const node of nodes) messages.push(visible(node, isShown(group)));
      }
      for (const arrows of run.arrows) {
        if (!isShown(arrows.group)) messages.push(visible(arrows.node, false));
      }
    }
    send(messages);
  }

  function receive(message) {
    if (message.type === "ViewerCameraMessage") camera = message;
    if (message.type !== "SceneNodeClickMessage") return;
    const run = data.runs.find((each) => message.name in each.owners);
    if (run) choice(run, run.owners[message.name]);
  }

  /** Where the client draws a point of the world: pixels from the corner of the canvas. */
  function project(x) {
    if (!camera) return null;
    const [w, a, b, c] = camera.wxyz;
    const d = x.map((v, k) => v + shift[k] - camera.position[k]);
    const seen = rotate([w, -a, -b, -c], d);
    const focal = camera.image_height / 2 / Math.tan(camera.fov / 2);
    return [
      camera.image_width / 2 + (focal * seen[0]) / seen[2],
      camera.image_height / 2 + (focal * seen[1]) / seen[2],
    ];
  }

  // --- controls ------------------------------------------------------------------------------------

  const ui = {};
  const select = (attributes, options) => element(
    "select", attributes, ...options.map(([value, text]) => element("option", { value }, text)),
  );
  const toggle = (set, x, on) => set[on ? "add" : "delete"](x);
  const number = (x) => (Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 ? x.toFixed(4) : x.toExponential(3));

  function seek(time) {
    state.time = Math.min(Math.max(time, data.start), data.end);
    draw();
  }

  function setPlaying(on) {
    state.playing = on && moving();
    if (state.playing && state.time >= data.end) state.time = data.start;
    ui.play.textContent = state.playing ? "❚❚" : "▶";
    ui.play.title = state.playing ? "Pause (space)" : "Play (space)";
    last = null;
    if (state.playing) requestAnimationFrame(tick);
  }

  let last = null;
  function tick(now) {
    if (!state.playing) return;
    if (last !== null) {
      let time = state.time + ((now - last) / 1000) * state.speed;
      if (time >= data.end) {
        if (ui.loop.checked) time = data.start;
        else {
          seek(data.end);
          return setPlaying(false);
        }
      }
      state.time = time;
      draw();
    }
    last = now;
    requestAnimationFrame(tick);
  }

  function buildControls() {
    document.body.classList.add("jx");
    if (!moving()) document.body.classList.add("jx-still");
    ui.play = element("button", { id: "jx-play", onclick: () => setPlaying(!state.playing) });
    ui.slider = element("input", {
      id: "jx-time", type: "range", min: 0, max: 1, step: "any", value: 0,
      "aria-label": "Time", oninput: () => {
        setPlaying(false);
        seek(data.start + Number(ui.slider.value) * (data.end - data.start));
      },
    });
    ui.clock = element("span", { id: "jx-clock" });
    const speeds = [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8];
    if (!speeds.includes(data.speed)) speeds.push(data.speed);
    ui.speed = select(
      { id: "jx-speed", title: "Speed", onchange: () => (state.speed = Number(ui.speed.value)) },
      speeds.sort((a, b) => a - b).map((s) => [s, `${s} ×`]),
    );
    ui.speed.value = state.speed = data.speed;
    const bodies = data.runs[0].bodies.slice(0, -1);
    const follow = () => {
      state.follow = ui.follow.value === "" ? null : Number(ui.follow.value);
      state.followFrom = state.time;
      draw();
    };
    ui.follow = select(
      { id: "jx-follow", title: "The camera follows", onchange: follow },
      [["", "fixed camera"], ...bodies.map((b, i) => [i, `follow ${b.name}`])],
    );
    ui.loop = element("input", { type: "checkbox", id: "jx-loop" });
    const loop = element("label", { title: "Start again at the end" }, ui.loop, " loop");
    const bar = element("div", { id: "jx-bar" }, ui.play, ui.slider, ui.clock, ui.speed, loop, ui.follow);
    ui.fold = element("button", {
      id: "jx-fold", title: "Show or hide the panel", onclick: () => {
        document.body.classList.toggle("jx-folded");
        window.dispatchEvent(new Event("resize"));
      },
    }, "☰");
    document.body.append(bar, ui.fold, buildSide());
    if (window.innerWidth < 760) document.body.classList.add("jx-folded");
    // Before the client hears them, whose arrow keys turn the camera.
    window.addEventListener("keydown", (event) => {
      const has = (selector) => event.target.matches?.(selector);
      const step = (data.end - data.start) / Math.max(data.pictures - 1, 1);
      if (has("select, textarea, input:not([type=checkbox])") && event.target !== ui.slider) return;
      if (event.code === "Space" && !has("button, input[type=checkbox]")) setPlaying(!state.playing);
      else if (event.code === "ArrowRight") seek(state.time + step);
      else if (event.code === "ArrowLeft") seek(state.time - step);
      else return;
      event.preventDefault();
      event.stopPropagation();
    }, { capture: true });
    window.addEventListener("resize", () => {
      plot.stale = true;
      showTime();
    });
    setPlaying(false);
  }

  function check(label, on, change, id) {
    const box = element("input", { type: "checkbox", checked: on, onchange: () => change(box.checked) });
    if (id) box.id = id;
    return element("label", {}, box, ` ${label}`);
  }

  function buildSide() {
    const side = element("div", { id: "jx-side" });
    if (data.runs.length > 1) {
      const boxes = data.runs.map((run, i) => {
        const label = check(run.name, true, (on) => {
          toggle(state.hiddenRuns, run.name, !on);
          plot.stale = true;
          applyGroups();
          draw();
        }, `jx-run-${i}`);
        if (i > 0) label.style.color = data.colors[i];
        return label;
      });
      side.append(element("h2", {}, "Motions"), element("div", { className: "jx-checks" }, ...boxes));
    }
    const curves = data.runs.flatMap((run) => run.curves);
    if (curves.length && moving()) {
      const names = [...new Set(curves.map((curve) => curve.kind))];
      state.kind = names[0];
      const change = () => {
        state.kind = ui.kind.value;
        state.hiddenCurves.clear();
        plot.stale = true;
        showTime();
      };
      ui.kind = select({ id: "jx-kind", onchange: change }, names.map((name) => [name, name]));
      ui.plot = element("canvas", { id: "jx-plot" });
      ui.legend = element("div", { id: "jx-legend" });
      const scrub = (event) => {
        if (event.type === "pointerdown") ui.plot.setPointerCapture(event.pointerId);
        else if (!ui.plot.hasPointerCapture(event.pointerId)) return;
        const box = ui.plot.getBoundingClientRect();
        const f = (event.clientX - box.left - plot.left) / (box.width - plot.left - plot.right);
        setPlaying(false);
        seek(data.start + f * (data.end - data.start));
      };
      for (const name of ["pointerdown", "pointermove"]) ui.plot.addEventListener(name, scrub);
      side.append(element("h2", {}, "Plot"), ui.kind, ui.plot, ui.legend);
    }
    ui.about = element("div", { id: "jx-about" });
    const things = data.runs.flatMap((run, r) => Object.keys(run.about).map(
      (name) => [`${r} ${name}`, r === 0 ? name : `${name} (${run.name})`],
    ));
    const choose = () => {
      const [r, ...name] = ui.names.value.split(" ");
      choice(ui.names.value === "" ? null : data.runs[Number(r)], name.join(" "));
    };
    ui.names = select(
      { id: "jx-selected", onchange: choose }, [["", "click on something, or choose"], ...things],
    );
    side.append(element("h2", {}, "Selected"), ui.names, ui.about);
    const groups = new Set(
      data.runs.flatMap((run) => [...Object.keys(run.groups), ...run.arrows.map((a) => a.group)]),
    );
    const hidden = new Set(["names", "axes", "joint forces"]);
    const boxes = [...groups].filter((g) => g !== "bodies").map((group) => {
      state.shown[group] = !hidden.has(group);
      return check(group, state.shown[group], (on) => {
        state.shown[group] = on;
        applyGroups();
        draw();
      }, `jx-show-${group.replaceAll(" ", "-")}`);
    });
    side.append(element("h2", {}, "Show"), element("div", { className: "jx-checks" }, ...boxes));
    if (data.runs.some((run) => run.arrows.length)) {
      const length = element("input", {
        type: "range", min: -2, max: 2, step: 0.05, value: 0, oninput: () => {
          state.arrowScale = 10 ** Number(length.value);
          draw();
        },
      });
      side.append(element("label", {}, "Length of the arrows ", length));
    }
    if (moving()) {
      state.trails = new Set(data.trails.map((name) => bodyOf(data.runs[0], name)));
    }
    showSelected();
    return side;
  }

  function choice(run, name) {
    state.selected = run && [run, name];
    showSelected();
  }

  function showSelected() {
    if (!state.selected) return ui.about.replaceChildren();
    const [run, name] = state.selected;
    ui.names.value = `${data.runs.indexOf(run)} ${name}`;
    ui.about.replaceChildren(...(ui.lines = [element("div")]));
    const i = bodyOf(run, name);
    if (i >= 0 && run === data.runs[0] && moving()) {
      ui.about.append(check("trail", state.trails.has(i), (on) => {
        toggle(state.trails, i, on);
        draw();
      }, "jx-trail"));
    }
    showNumbers();
  }

  function showNumbers() {
    if (!state.selected || !ui.lines) return;
    const [run, name] = state.selected;
    const lines = [...(run.about[name] || [])];
    if (data.runs.length > 1) lines.push(`in the motion ${run.name}`);
    const i = bodyOf(run, name);
    if (i >= 0) {
      const [position, p] = pose(run, i, state.time);
      lines.push(`position ${position.map(number).join(", ")} m`);
      lines.push(`quaternion ${p.map((c) => c.toFixed(4)).join(", ")}`);
    }
    const unit = (kind) => /^(.*) \[(.*)\]$/.exec(kind) || [kind, kind, ""];
    for (const curve of run.curves) {
      const own = curve.name === name || new RegExp(`^${escape(name)} \\d+$`).test(curve.name);
      if (!own || curve.kind.startsWith("energy")) continue;
      const [, what, dimension] = unit(curve.kind);
      const which = curve.name === name ? "" : curve.name.slice(name.length);
      lines.push(`${what}${which} ${number(row(curve.values, 1, state.time)[0])} ${dimension}`);
    }
    for (const link of run.links) {
      if (run.owners[link.node] !== name) continue;
      const [a, b] = link.ends.map(([body, ...x]) => point(pose(run, body, state.time), x));
      lines.push(`length ${number(Math.hypot(...a.map((c, k) => c - b[k])))} m`);
    }
    ui.lines[0].textContent = lines.join("\n");
  }

  const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

  function showTime() {
    if (!ui.clock) return;
    const span = data.end - data.start;
    ui.slider.value = span > 0 ? (state.time - data.start) / span : 0;
    const digits = span < 1 ? 4 : 2;
    ui.clock.textContent = `${state.time.toFixed(digits)} / ${data.end.toFixed(digits)} s`;
    showPlot();
    showNumbers();
  }

  // --- plot ----------------------------------------------------------------------------------------

  const plot = { left: 46, right: 8, top: 8, bottom: 20, stale: true, picture: null };
  const palette = ["#3b6ea8", "#e08a3c", "#4f9d69", "#c8504f", "#7d6bb0", "#4aa5b8", "#9a7b5c", "#d183b4"];

  function shownCurves() {
    const all = data.runs.flatMap((run, r) =>
      run.curves.filter((c) => c.kind === state.kind).map((curve) => ({
        curve, dash: r === 0 ? [] : [5, 3],
        shown: !state.hiddenCurves.has(curve.name) && !state.hiddenRuns.has(run.name),
      })),
    );
    const names = [...new Set(all.map(({ curve }) => curve.name))];
    return all.map((each) => {
      const i = names.indexOf(each.curve.name);
      return { ...each, color: palette[i % palette.length], dim: i >= palette.length };
    });
  }

  function drawCurves(width, height, ratio) {
    const curves = shownCurves();
    const picture = document.createElement("canvas");
    picture.width = width * ratio;
    picture.height = height * ratio;
    const g = picture.getContext("2d");
    g.scale(ratio, ratio);
    let low = Infinity, high = -Infinity;
    for (const { curve, shown } of curves) {
      for (const y of shown ? curve.values : []) {
        if (y < low) low = y;
        if (y > high) high = y;
      }
    }
    [low, high] = roomy(low, high);
    const x = (t) => plot.left + ((t - data.start) / (data.end - data.start)) * (width - plot.left - plot.right);
    const y = (v) => height - plot.bottom - ((v - low) / (high - low)) * (height - plot.top - plot.bottom);
    g.font = "11px system-ui, sans-serif";
    g.fillStyle = "#70757d";
    g.strokeStyle = "#e7e9ee";
    g.lineWidth = 1;
    const [ys, digits] = ticks(low, high, 5);
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (const v of ys) {
      stroke(g, [[plot.left, y(v)], [width - plot.right, y(v)]]);
      g.fillText(written(v, low, high, digits), plot.left - 5, y(v));
    }
    g.textAlign = "center";
    g.textBaseline = "top";
    const [xs, places] = ticks(data.start, data.end, 5);
    for (const t of xs) g.fillText(`${t.toFixed(places)} s`, Math.min(x(t), width - 16), height - plot.bottom + 5);
    g.lineWidth = 1.5;
    for (const { curve, color, dash, shown, dim } of curves) {
      if (!shown) continue;
      g.strokeStyle = color;
      g.globalAlpha = dim ? 0.55 : 1;
      g.setLineDash(dash);
      const step = (data.end - data.start) / Math.max(curve.values.length - 1, 1);
      stroke(g, Array.from(curve.values, (v, i) => [x(data.start + step * i), y(v)]));
    }
    plot.x = x;
    ui.legend.replaceChildren(
      ...curves.filter((c, i) => curves.findIndex((d) => d.curve.name === c.curve.name) === i).map((c) =>
        element(
          "span",
          {
            className: state.hiddenCurves.has(c.curve.name) ? "jx-off" : "", onclick: () => {
              toggle(state.hiddenCurves, c.curve.name, !state.hiddenCurves.has(c.curve.name));
              plot.stale = true;
              showPlot();
            },
          },
          element("i", { style: `background:${c.color}` }),
          c.curve.name,
        ),
      ),
    );
    return picture;
  }

  function showPlot() {
    if (!ui.plot || document.body.classList.contains("jx-folded")) return;
    const width = ui.plot.clientWidth, height = ui.plot.clientHeight;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (plot.stale || !plot.picture) {
      plot.picture = drawCurves(width, height, ratio);
      ui.plot.width = width * ratio;
      ui.plot.height = height * ratio;
      plot.stale = false;
    }
    const g = ui.plot.getContext("2d");
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, ui.plot.width, ui.plot.height);
    g.drawImage(plot.picture, 0, 0);
    g.scale(ratio, ratio);
    g.strokeStyle = "#2b2f36";
    const x = plot.x(state.time);
    stroke(g, [[x, plot.top], [x, height - plot.bottom]]);
  }

  // --- start -------------------------------------------------------------------------------------

  async function start() {
    try {
      data = await decode(document.getElementById("jaxmbd-content").textContent);
      state.time = data.start;
      buildControls();
      window.dispatchEvent(new Event("resize"));
      window.jaxmbd = {
        seek, project, play: () => setPlaying(true), pause: () => setPlaying(false),
        follow: (i) => {
          ui.follow.value = i === null ? "" : i;
          ui.follow.dispatchEvent(new Event("change"));
        },
        get time() { return state.time; },
        get connected() { return connected && camera !== null; },
        get camera() { return camera; },
        get selected() { return state.selected && state.selected[1]; },
        position: (r, name) => pose(data.runs[r], bodyOf(data.runs[r], name), state.time)[0],
      };
      connect();
    } catch (error) {
      document.body.append(element("div", { id: "jx-error" }, `This page cannot be shown: ${error}`));
      throw error;
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
