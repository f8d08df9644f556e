// The board: rows that change under it, curves to compare, one page for each run. No build step, no library but uPlot.
// What a run says (names, logs, findings) is only ever set as text.
"use strict";

const COLOURS = ["#2f7fd1", "#d9722e", "#3a9d5d", "#b9539f", "#c9a227", "#5bb5c9", "#d1495b", "#8a7bd1", "#7c8b3a", "#8c8c8c"];
const MOST_CHARTS = 6; // shown at first
const SILENCE = 25000; // ms without a word of the server after which the page calls itself disconnected
const REFRESH = 3000; // ms between two readings of a live run's page
const STATES = ["running", "queued", "unknown", "unread", "failed", "lost", "preempted", "stopped", "finished"];
const OVER = ["finished", "failed", "stopped", "preempted", "lost"];

const state = { rows: new Map(), house: { queue: [], leases: [] }, chosen: new Set(), places: 1, text: "", kind: "all", sort: "state", down: false };
const embedded = document.getElementById("data");
const fixed = embedded ? JSON.parse(embedded.textContent) : null; // the static page
const main = document.getElementById("main");
let page = null; // {update(ids), close()}

// -- small tools

function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const now = () => (fixed ? fixed.time : Date.now() / 1000);

function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

function number(value, digits = 4) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2).replace(/\.?0+e/, "e") : String(Number(value.toPrecision(digits)));
}

const count = (value) => (typeof value === "number" ? value.toLocaleString("en-US") : "");
const clock = (time) => (time > 0 && time < 1e12 ? new Date(time * 1000).toISOString().slice(0, 19).replace("T", " ") : "");
const stateClass = (row) => `s-${/^[a-z]+$/.test(row.state) ? row.state : "unknown"}`;

function share(row) {
  if (row.state === "finished") return 1;
  if (row.total && row.step !== null) return Math.min(1, row.step / row.total);
  return row.epochs && row.epoch !== null ? Math.min(1, row.epoch / row.epochs) : null;
}

function worst(row) {
  const grades = (row.findings || []).map((finding) => finding.severity);
  return row.problem || grades.includes("error") ? 2 : grades.includes("warn") ? 1 : 0;
}

// -- where the data comes from: the server, or the page itself

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

const source = fixed
  ? {
      run: async (id) => fixed.details[id] || { row: state.rows.get(id) },
      curves: async (ids, metric) => {
        const names = new Map();
        const curves = {};
        for (const id of ids) {
          const known = (fixed.details[id] || {}).curves || {};
          for (const name of Object.keys(known)) names.set(name, (names.get(name) || 0) + 1);
          if (known[metric]) curves[id] = known[metric];
        }
        const order = ["loss", "train_loss", "val_loss"];
        const rank = (name) => (order.indexOf(name) + 10) % 10;
        const sorted = [...names.keys()].sort((a, b) => names.get(b) - names.get(a) || rank(a) - rank(b) || (a < b ? -1 : 1));
        return { names: sorted, curves };
      },
    }
  : {
      run: (id) => ask(`api/run/${id}`),
      curves: (ids, metric, range) => {
        const query = new URLSearchParams({ runs: ids.join(","), metric, width: 700 });
        if (range) { query.set("low", range[0]); query.set("high", range[1]); }
        return ask(`api/curves?${query}`);
      },
    };

function take(change) {
  if (change.full) state.rows.clear();
  for (const row of change.rows || []) state.rows.set(row.id, row);
  for (const id of change.gone || []) state.rows.delete(id);
  if (change.house) state.house = change.house;
  const all = [...state.rows.values()];
  state.places = new Set(all.map((row) => row.place)).size;
  const running = all.filter((row) => row.state === "running").length;
  const bad = all.filter((row) => worst(row) === 2).length;
  document.getElementById("counts").textContent =
    `${all.length} runs · ${running} running` + (bad ? ` · ${bad} with an error` : "");
  if (page) page.update(new Set([...(change.rows || []).map((row) => row.id), ...(change.gone || [])]), change.full || "house" in change);
}

function connect() {
  const link = document.getElementById("link");
  let lost = null; // when the connection was lost
  let heard = Date.now();
  let stream = null;
  const show = () => {
    document.body.classList.toggle("offline", lost !== null);
    link.textContent = lost === null ? "live" : `disconnected for ${span((Date.now() - lost) / 1000)}, trying again`;
  };
  const fail = () => {
    if (stream) stream.close();
    stream = null;
    lost = lost ?? Date.now();
    show();
    setTimeout(open, 1500);
  };
  const hear = () => { heard = Date.now(); lost = null; show(); };
  const open = () => {
    stream = new EventSource("events");
    heard = Date.now();
    stream.addEventListener("change", (event) => { hear(); take(JSON.parse(event.data)); });
    stream.addEventListener("beat", hear);
    stream.onerror = fail;
  };
  setInterval(() => {
    if (stream && Date.now() - heard > SILENCE) fail();
    else if (lost !== null) show();
  }, 1000);
  link.textContent = "connecting";
  open();
}

// -- the overview

const COLUMNS = [
  ["pick", "", null],
  ["name", "run", (row) => row.name.toLowerCase()],
  ["state", "state", (row) => STATES.indexOf(row.state) * 3 - worst(row)], // those with findings first
  ["progress", "progress", (row) => share(row) ?? -1],
  ["value num", "loss", (row) => (typeof row.value === "number" ? row.value : Infinity)],
  ["spark", "", null],
  ["speed num", "speed", (row) => row.it_per_s || 0],
  ["left num", "left", (row) => row.ends ?? Infinity],
  ["health", "health", (row) => -worst(row)],
  ["cost num", "cost", (row) => -(row.cost || 0)],
  ["lease", "lease", (row) => (row.lease && row.lease.ends) || Infinity],
  ["age num", "age", (row) => -Math.floor((row.last || 0) / 60)], // live rows must not swap places all the time
];

function sparkline(values) {
  if (!values || values.length < 2) return null;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const low = Math.min(...values);
  const height = Math.max(...values) - low || 1;
  const places = values.map((y, i) => `${((i * 84) / (values.length - 1)).toFixed(1)},${(20 - ((y - low) / height) * 18).toFixed(1)}`);
  line.setAttribute("points", places.join(" "));
  svg.setAttribute("viewBox", "0 0 84 22");
  svg.setAttribute("aria-hidden", "true");
  svg.append(line);
  return svg;
}

function health(row) {
  const serious = (row.findings || []).filter((finding) => finding.severity !== "info");
  const spans = serious.slice(0, 2).map((finding) => el("span", { class: finding.severity, title: finding.message }, finding.code));
  if (serious.length > 2) spans.push(el("span", { class: "quiet" }, `+${serious.length - 2}`));
  if (row.problem) spans.unshift(el("span", { class: "error", title: row.problem }, row.problem.slice(0, 90)));
  if (row.pending) spans.unshift(el("span", { class: "quiet" }, "not judged yet"));
  if (row.stale) spans.unshift(el("span", { class: "warn" }, "box not reached"));
  return spans;
}

function lease(row) {
  const end = row.lease && row.lease.ends;
  if (!row.lease) return "";
  return row.lease.state !== "active" ? row.lease.state : end ? (end > now() ? `${span(end - now())} left` : "due") : "active";
}

const CELLS = {
  pick: (row) => {
    const onchange = (event) => choose(row.id, event.target.checked);
    return el("input", { type: "checkbox", checked: state.chosen.has(row.id), "aria-label": `compare ${row.name}`, onchange });
  },
  name: (row) => [el("a", { href: `#/run/${row.id}` }, row.name), state.places > 1 ? el("small", {}, row.place) : null],
  state: (row) => el("span", { class: `dot ${stateClass(row)}` }, row.state),
  progress: (row) => {
    const part = share(row);
    const epoch = typeof row.epoch === "number" ? `epoch ${number(row.epoch)}` : "";
    const of = row.total >= row.step ? ` / ${count(row.total)}` : "";
    const steps = typeof row.step === "number" ? count(row.step) + of : epoch;
    const bar = part === null ? null : el("i", {});
    if (bar) bar.style.width = `${(part * 100).toFixed(1)}%`;
    return [steps, bar ? el("span", { class: "track" }, bar) : null];
  },
  value: (row) => (row.value === undefined ? "" : el("span", { title: row.metric || "", class: typeof row.value === "string" ? "error" : "" }, number(row.value))),
  spark: (row) => sparkline(row.spark),
  speed: (row) => (row.it_per_s && !OVER.includes(row.state) ? `${number(row.it_per_s, 3)} it/s` : ""),
  left: (row) => (row.ends && !OVER.includes(row.state) ? span(row.ends - now()) : ""),
  health,
  cost: (row) => (typeof row.cost === "number" ? row.cost.toFixed(2) : ""),
  lease,
  age: (row) => (row.last ? span(now() - row.last) : row.asked ? span(now() - row.asked) : ""),
};

function fill(tr, row, names = Object.keys(CELLS)) {
  tr.className = `${stateClass(row)}${row.stale ? " stale" : ""}`;
  for (const cell of tr.children) {
    const name = cell.className.split(" ")[0];
    if (names.includes(name)) cell.replaceChildren(...[CELLS[name](row)].flat().filter((child) => child !== null && child !== ""));
  }
}

function choose(id, on) {
  if (on) state.chosen.add(id);
  else state.chosen.delete(id);
  showChosen();
}

function showChosen() {
  document.getElementById("chosen")?.remove();
  if (!state.chosen.size || location.hash.startsWith("#/compare")) return;
  const empty = () => { state.chosen.clear(); showChosen(); if (page) page.update(null, true); };
  const go = el("a", { href: `#/compare/${[...state.chosen].join(",")}` }, "compare curves");
  document.body.append(el("div", { id: "chosen" }, `${state.chosen.size} chosen`, go, el("button", { onclick: empty }, "clear")));
}

function overview() {
  const lines = new Map(); // id -> tr
  const body = el("tbody");
  const house = el("div");
  const kinds = ["all", "running", "queued", "finished", "failed", "findings"];
  const fits = (row) => {
    const kind =
      state.kind === "all" || row.state === state.kind || (state.kind === "findings" && worst(row) > 0) ||
      (state.kind === "failed" && ["lost", "preempted"].includes(row.state));
    const words = `${row.name} ${row.place} ${row.state} ${(row.findings || []).map((finding) => finding.code).join(" ")}`.toLowerCase();
    return kind && state.text.toLowerCase().split(/\s+/).every((word) => words.includes(word));
  };
  const none = el("p", { class: "quiet" });

  function arrange() {
    const key = COLUMNS.find(([, title]) => title === state.sort)[2];
    const sign = state.down ? -1 : 1;
    const shown = [...state.rows.values()].filter(fits).sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (x < y ? -sign : x > y ? sign : 0) || (a.name > b.name ? -1 : 1); // names begin with a time: newest first
    });
    shown.forEach((row, at) => {
      if (!lines.has(row.id)) {
        lines.set(row.id, el("tr", { "data-id": row.id }, COLUMNS.map(([name]) => el("td", { class: name }))));
        fill(lines.get(row.id), row);
      }
      const tr = lines.get(row.id);
      if (body.children[at] !== tr) body.insertBefore(tr, body.children[at] || null);
    });
    while (body.children.length > shown.length) body.lastChild.remove();
    none.textContent = shown.length ? "" : state.rows.size ? "No run fits the filter." : "No runs yet.";
    for (const head of heads.children) {
      if (head.dataset.title === state.sort) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  const heads = el("tr", {}, COLUMNS.map(([name, title, key]) => {
    const sort = () => { state.down = state.sort === title && !state.down; state.sort = title; arrange(); };
    return el("th", { class: name, "data-title": title, scope: "col" }, key ? el("button", { onclick: sort }, title) : "");
  }));
  const oninput = (event) => { state.text = event.target.value; arrange(); };
  const placeholder = "filter by name, place, finding";
  const search = el("input", { type: "search", placeholder, value: state.text, "aria-label": "filter", oninput });
  const buttons = kinds.map((kind) => el("button", { "aria-pressed": String(kind === state.kind), onclick: (event) => {
    state.kind = kind;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.target));
    arrange();
  } }, kind));
  main.replaceChildren(el("div", { class: "bar" }, search, buttons), house, el("table", { class: "runs" }, el("thead", {}, heads), body), none);
  house.append(showHouse());
  arrange();
  const timer = setInterval(() => {
    for (const [id, tr] of lines) {
      const row = state.rows.get(id);
      if (row && tr.isConnected) fill(tr, row, ["age", "left", "lease"]);
    }
  }, 5000);
  return {
    update(ids, all) {
      if (all) {
        const open = house.querySelector("details")?.open;
        house.replaceChildren(showHouse(open));
      }
      for (const [id, tr] of lines) {
        const row = state.rows.get(id);
        if (!row) { tr.remove(); lines.delete(id); } else if (!ids || ids.has(id)) {
          fill(tr, row);
        }
      }
      arrange();
    },
    close: () => clearInterval(timer),
  };
}

function table(titles, rows, className = "") {
  return el("div", { class: "scroll" }, el("table", { class: className }, el("thead", {}, el("tr", {}, titles.map((title) => el("th", { scope: "col" }, title)))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell ?? "")))))));
}

function showHouse(open = false) {
  const { queue, leases } = state.house;
  if (!queue.length && !leases.length) return "";
  const jobs = (word) => queue.filter((job) => job.state === word).length;
  const active = leases.filter((one) => one.state === "active").length;
  const parts = [queue.length ? `Gate: ${jobs("running")} running, ${jobs("queued")} waiting` : "", leases.length ? `Leases: ${active} active of ${leases.length}` : ""];
  const when = (job) => (job.ended ? `ended ${span(now() - job.ended)} ago` : job.started ? `for ${span(now() - job.started)}` : `waits ${span(now() - job.submitted)}`);
  const box = el("details", { class: "house" }, el("summary", {}, parts.filter(Boolean).join(" · ")));
  box.open = open;
  const line = (job) => [job.name, job.host || "here", job.state, (job.gpus || []).join(", "), when(job), job.reason];
  if (queue.length) box.append(table(["job", "host", "state", "cards", "", "reason"], queue.map(line)));
  const ends = (one) => (one.ends ? (one.ends > now() ? `in ${span(one.ends - now())}` : "due") : one.idle ? `idle ${span(one.idle)}` : "");
  const held = (one) => [one.box, one.run_id, one.problem || one.state, ends(one), one.on_end, number(one.most)];
  if (leases.length) box.append(table(["box", "run", "state", "ends", "at the end", "at most"], leases.map(held)));
  return box;
}

// -- curves

const look = { smooth: 0, log: false };

function smoothed(ys, strength) {
  const weight = strength ** Math.max(1, 300 / ys.length); // a curve of few points is not bent by it
  let mean = 0;
  let sum = 0; // of the weights: without it the curve would start at 0
  return ys.map((y) => {
    if (y === null) return null;
    mean = weight * mean + (1 - weight) * y;
    sum = weight * sum + (1 - weight);
    return mean / sum;
  });
}

class Chart {
  constructor(ids, metric, colours, zoom) { // zoom(range) is that of all charts beside it
    Object.assign(this, { ids, metric, colours, zoom, range: null, plot: null, curves: {} });
    this.read = el("span", { class: "read" });
    this.reset = el("button", { hidden: true, onclick: () => this.zoom(null) }, "whole");
    this.holder = el("div");
    this.node = el("div", { class: "chart" }, el("div", {}, el("b", {}, metric), this.read, this.reset), this.holder);
  }

  async load() {
    try {
      this.curves = (await source.curves(this.ids, this.metric, this.range)).curves;
    } catch (error) {
      this.read.textContent = error.message;
      return;
    }
    this.draw();
  }

  show(range) {
    this.range = range;
    this.reset.hidden = !range;
    return this.load();
  }

  draw() {
    const width = this.holder.clientWidth;
    const ids = this.ids.filter((id) => this.curves[id] && this.curves[id][0].length);
    if (!width || !ids.length) { this.read.textContent = ids.length ? "" : "no points"; return; }
    const style = getComputedStyle(document.body);
    const [quiet, line] = ["--quiet", "--line"].map((name) => style.getPropertyValue(name).trim());
    const clean = (ys) => (look.log ? ys.map((y) => (y > 0 ? y : null)) : ys);
    const tables = [];
    const series = [{ label: "step" }];
    for (const id of ids) {
      const [xs, ys] = [this.curves[id][0], clean(this.curves[id][1])];
      const colour = this.colours.get(id);
      if (look.smooth) {
        tables.push([xs, ys]);
        series.push({ stroke: colour, alpha: 0.22, width: 1, spanGaps: true, points: { show: false } });
      }
      tables.push([xs, look.smooth ? smoothed(ys, look.smooth) : ys]);
      series.push({ stroke: colour, width: 1.5, spanGaps: true, points: { show: xs.length < 40, size: 4 }, run: id });
    }
    const grid = { stroke: line, width: 1 };
    const axis = { stroke: quiet, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif", gap: 3 };
    const steps = (_, ticks) => ticks.map((tick) => (tick >= 1e4 ? `${number(tick / 1e3)}k` : number(tick)));
    const values = (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick, 3)));
    const filters = { pub: (type) => type === "mousemove" || type === "mouseleave" }; // not the drag: all zoom together
    const options = {
      width, height: this.ids.length > 1 || this.node.parentNode?.classList.contains("one") ? 300 : 210,
      legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "board", setSeries: false, filters } },
      scales: { x: { time: false, ...(this.range ? { range: () => this.range } : {}) }, y: look.log ? { distr: 3 } : {} },
      axes: [{ ...axis, size: 28, values: steps }, { ...axis, size: 50, values }],
      series,
      hooks: {
        setSelect: [(plot) => {
          if (plot.select.width < 8) return;
          this.zoom([plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")]);
        }],
        setCursor: [(plot) => this.tell(plot)],
      },
    };
    this.plot?.destroy();
    this.plot = new uPlot(options, uPlot.join(tables), this.holder);
  }

  tell(plot) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined) { this.read.replaceChildren(); return; }
    const near = (values) => { // runs have steps of their own: the nearest point counts
      for (let far = 0; far < 40; far += 1) {
        const value = values[at - far] ?? values[at + far];
        if (value !== null && value !== undefined) return value;
      }
      return null;
    };
    const parts = [`at ${number(plot.data[0][at], 6)}`];
    plot.series.forEach((one, index) => {
      const value = one.run ? near(plot.data[index]) : null;
      if (value === null || parts.length > 24) return;
      const chip = el("i");
      chip.style.background = this.colours.get(one.run);
      parts.push(chip, number(value));
    });
    this.read.replaceChildren(...parts);
  }
}

// charts of these runs, with the switches above them
function charts(ids) {
  const colours = new Map(ids.map((id, at) => [id, COLOURS[at % COLOURS.length]]));
  const grid = el("div", { class: "charts" });
  const picker = el("span", { class: "bar" });
  const shown = new Map(); // metric -> Chart
  let names = [];
  const zoom = (range) => Promise.all([...shown.values()].map((chart) => chart.show(range)));
  const redraw = () => { for (const chart of shown.values()) chart.draw(); };
  const show = (name, on) => {
    if (on && !shown.has(name)) shown.set(name, new Chart(ids, name, colours, zoom));
    if (!on) { shown.get(name)?.plot?.destroy(); shown.get(name)?.node.remove(); shown.delete(name); }
    grid.replaceChildren(...names.filter((known) => shown.has(known)).map((known) => shown.get(known).node));
    grid.classList.toggle("one", shown.size < 2);
  };
  const oninput = (event) => { look.smooth = Number(event.target.value); redraw(); };
  const weight = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: look.smooth, oninput });
  const log = el("input", { type: "checkbox", checked: look.log, onchange: (event) => { look.log = event.target.checked; redraw(); } });
  const switches = [el("label", {}, "smoothing", weight), el("label", {}, log, "log scale"), el("span", { class: "quiet hint" }, "drag to zoom")];
  const node = el("section", {}, el("div", { class: "bar" }, switches, picker), grid);
  const watcher = new ResizeObserver(redraw);
  watcher.observe(grid);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", redraw);
  async function load() {
    try {
      const fresh = (await source.curves(ids, "loss")).names;
      const added = fresh.filter((name) => !names.includes(name));
      names = fresh;
      added.forEach((name) => {
        const wanted = shown.size < MOST_CHARTS;
        picker.append(el("button", { "aria-pressed": String(wanted), onclick: async (event) => {
          const on = !shown.has(name);
          event.target.setAttribute("aria-pressed", String(on));
          show(name, on);
          if (on) await shown.get(name).load();
          redraw();
        } }, name));
        if (wanted) show(name, true);
      });
      if (!names.length) grid.replaceChildren(el("p", { class: "quiet" }, "no curves yet"));
      await Promise.all([...shown.values()].map((chart) => chart.load()));
    } catch (error) {
      grid.replaceChildren(el("p", { class: "error" }, error.message));
    }
  }
  const close = () => { watcher.disconnect(); scheme.removeEventListener("change", redraw); for (const chart of shown.values()) chart.plot?.destroy(); };
  return { node, load, close, colours };
}

// at most one call at a time, and none sooner than REFRESH after the last
function calm(action) {
  let busy = false;
  let again = false;
  return async function call() {
    if (busy) { again = true; return; }
    busy = true;
    await action();
    setTimeout(() => { busy = false; if (again) { again = false; call(); } }, REFRESH);
  };
}

function compare(ids) {
  const drawn = charts(ids);
  const legend = el("div", { class: "legend" });
  const names = () => legend.replaceChildren(...ids.map((id) => {
    const chip = el("i");
    chip.style.background = drawn.colours.get(id);
    const row = state.rows.get(id);
    return el("span", {}, chip, el("a", { href: `#/run/${id}` }, row ? row.name : id), row ? el("span", { class: "quiet" }, ` ${row.state} ${number(row.value)}`) : "");
  }));
  main.replaceChildren(el("h1", {}, `${ids.length} runs compared`), legend, drawn.node);
  names();
  const refresh = calm(drawn.load);
  refresh();
  return { update(changed) { if (!changed || ids.some((id) => changed.has(id))) { names(); refresh(); } }, close: drawn.close };
}

// -- one run

function onePage(id) {
  const head = el("div");
  const judged = el("div");
  const rest = el("div");
  const drawn = charts([id]);
  const log = el("pre", { tabIndex: 0, "aria-label": "end of the log" });
  const logTitle = el("h2");
  main.replaceChildren(head, judged, drawn.node, rest, logTitle, log);

  function showHead() {
    const row = state.rows.get(id);
    if (!row) { head.replaceChildren(el("p", {}, "This run is not on the board (any more).")); return; }
    document.title = row.name;
    const facts = [["step", count(row.step) + (row.total ? ` of ${count(row.total)}` : "")], [row.metric || "loss", number(row.value)],
      ["speed", row.it_per_s ? `${number(row.it_per_s, 3)} it/s` : ""], ["tokens/s", row.tokens_per_s ? count(Math.round(row.tokens_per_s)) : ""], ["left", CELLS.left(row)],
      ["last line", row.last ? `${span(now() - row.last)} ago` : ""], ["cost", CELLS.cost(row)], ["lease", lease(row)]];
    head.replaceChildren(el("h1", {}, row.name), el("div", { class: "quiet mono" }, row.place === row.path ? row.path : `${row.place}  ${row.path}`),
      el("div", { class: "facts" }, el("b", { class: `dot ${stateClass(row)}` }, row.state), facts.filter(([, value]) => value !== "").map(([name, value]) => el("span", {}, `${name} `, el("b", {}, value)))),
      row.problem ? el("p", { class: "error" }, row.problem) : "");
  }

  function showRest(detail) {
    const text = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? ""));
    const { decision, findings = [], results = [], checkpoints = [], events = [], record = {} } = detail;
    const parts = [];
    if (decision) parts.push(el("p", {}, el("b", {}, decision.word), ` — ${decision.reason}`, el("br"), el("span", { class: "mono quiet" }, decision.next)));
    parts.push(el("ul", { class: "findings" }, findings.map((one) => el("li", { class: one.severity }, el("b", {}, one.code), ` ${one.message}`,
      one.evidence ? el("div", { class: "quiet mono" }, text(one.evidence)) : "", one.fix ? el("div", { class: "quiet" }, `→ ${text(one.fix)}`) : ""))));
    const columns = el("div", { class: "two" });
    const add = (title, node) => columns.append(el("div", {}, el("h2", {}, title), node));
    const result = (one) => [text(one.name), text(one.split), number(one.value, 6), text(one.rule)];
    const saved = (one) => [count(one.step), `${span(now() - one.time)} ago`, text(one.path), one.verified ? "yes" : ""];
    const happened = ({ time, event, ...more }) => {
      const facts = Object.entries(more).map(([name, value]) => `${name} ${text(value)}`);
      return [typeof time === "number" ? clock(time) : "", text(event), facts.join(", ").slice(0, 300)];
    };
    if (results.length) add("Results", table(["metric", "split", "value", "rule"], results.map(result)));
    if (checkpoints.length) add(`Checkpoints (${checkpoints.length})`, table(["step", "written", "path", "verified"], [...checkpoints].reverse().map(saved)));
    if (events.length) add(`Events (${events.length})`, table(["time (UTC)", "event", ""], [...events].reverse().map(happened)));
    const known = Object.entries(record);
    if (known.length) add("Record", table(["", ""], known.map(([name, value]) => [name, Array.isArray(value) ? value.map(text).join(" ") : text(value)])));
    judged.replaceChildren(...parts);
    rest.replaceChildren(columns);
    const bottom = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    logTitle.textContent = detail.log ? `Log${detail.log.cut ? ", its end" : ""}` : "No log here";
    log.hidden = !detail.log;
    log.textContent = detail.log ? detail.log.lines.join("\n") : "";
    if (bottom) log.scrollTop = log.scrollHeight;
  }

  const refresh = calm(async () => {
    try {
      const [detail] = await Promise.all([source.run(id), drawn.load()]);
      showRest(detail);
    } catch (error) {
      rest.replaceChildren(el("p", { class: "error" }, error.message));
    }
  });
  showHead();
  refresh();
  const timer = setInterval(showHead, 5000);
  return { update(ids) { if (!ids || ids.has(id)) { showHead(); refresh(); } }, close() { clearInterval(timer); drawn.close(); document.title = "Runs"; } };
}

// -- routes

function route() {
  if (page) page.close();
  page = null;
  const [, kind, words] = location.hash.match(/^#\/(run|compare)\/([0-9a-f,]+)$/) || [];
  if (kind === "run") page = onePage(words);
  else if (kind === "compare") page = compare([...new Set(words.split(",").filter(Boolean))].slice(0, 50));
  else page = overview();
  showChosen();
  scrollTo(0, 0);
}

addEventListener("hashchange", route);
if (fixed) {
  take({ ...fixed, full: true });
  document.getElementById("link").textContent = `as of ${clock(fixed.time)} UTC`;
} else connect();
route();
