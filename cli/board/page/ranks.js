"use strict";
// Ranks' work, the wait graph, memory, checkpoints and events.

function rankCard(rank, stall) {
  const waits = rank.waits || [];
  const cause = stall && stall.rank === rank.rank;
  const card = element("div", undefined, `rank${cause ? " cause" : waits.length && stall ? " waits" : ""}`);
  card.dataset.rank = rank.rank;
  card.append(element("h3", `rank ${rank.rank}` + (rank.host ? ` · ${rank.host} · ${rank.pid}` : "")));
  if (!rank.heard) {
    card.append(element("p", `not heard for ${formatSeconds(rank.heard_s)}`, "bad"));
    return card;
  }
  card.append(element("p", `${rank.command || "idle"} for ${formatSeconds(rank.command_for_s)}`));
  const list = element("ul");
  for (const stream of rank.streams || []) {
    if (stream.doing) list.append(element("li", `${stream.name}: ${stream.doing} (${formatSeconds(stream.for_s)})`));
  }
  for (const wait of waits) {
    list.append(element("li", `${wait.who} waits for ${wait.what} (${formatSeconds(wait.for_s)})`, "warn"));
  }
  for (const one of rank.collectives || []) {
    list.append(element("li", `${one.what}: ${one.phase} (${formatSeconds(one.for_s)})`));
  }
  card.append(list);
  return card;
}

function drawRanks(status) {
  const box = byId("ranks");
  const ranks = status.ranks || [];
  box.replaceChildren(...ranks.map((rank) => rankCard(rank, status.stall)));
  if (ranks.length === 0) box.append(element("p", "No rank is at work.", "muted"));
  drawArrows(status.stall);
}

/// Edges from every waiting rank to the one it waits for.
function drawArrows(stall) {
  const svg = byId("arrows");
  svg.replaceChildren();
  const cause = stall && document.querySelector(".rank.cause");
  if (!cause) return;
  const space = svg.getBoundingClientRect();
  const middle = (node) => {
    const box = node.getBoundingClientRect();
    return [box.left + box.width / 2 - space.left, box.top + box.height / 2 - space.top];
  };
  const make = (kind, values) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
    return made;
  };
  const head = make("marker", { id: "head", markerWidth: 8, markerHeight: 8, refX: 7, refY: 4, orient: "auto" });
  head.append(make("path", { d: "M0,0 L8,4 L0,8 z", fill: "var(--bad)" }));
  svg.append(head);
  const [toX, toY] = middle(cause);
  for (const waiting of document.querySelectorAll(".rank.waits")) {
    const [fromX, fromY] = middle(waiting);
    svg.append(make("line", { x1: fromX, y1: fromY, x2: toX, y2: toY, stroke: "var(--bad)",
      "stroke-width": 2, "marker-end": "url(#head)" }));
  }
}

function meter(name, bytes, most, note) {
  const row = element("div");
  row.append(element("div", `${name}: ${formatBytes(bytes)}${note || ""}`));
  const bar = element("div", undefined, "meter");
  const fill = element("div");
  fill.style.width = `${Math.min(100, (100 * bytes) / most)}%`;
  bar.append(fill);
  row.append(bar);
  return row;
}

function drawMemory(status) {
  const box = byId("memory");
  const plan = Object.entries(status.memory_plan || {}).filter(([, bytes]) => bytes > 0);
  const planned = plan.reduce((sum, [, bytes]) => sum + bytes, 0);
  const held = status.memory || [];
  const most = Math.max(planned, ...held.map((one) => one.resident_bytes), 1);
  box.replaceChildren();
  for (const one of held) box.append(meter(`process of rank ${one.rank}`, one.resident_bytes, most, " resident"));
  for (const [kind, bytes] of plan) box.append(meter(kind.replaceAll("_", " "), bytes, most, " planned for a rank"));
  if (box.childElementCount === 0) box.append(element("p", "Not known.", "muted"));
}

const kBadEvents = new Set(
  ["rank_lost", "damage_found", "checkpoint_failed", "nodes_lost", "stalled", "failed"]);

function drawEvents(events) {
  const items = events.slice(-500).reverse().map((event) => {
    const step = event.step === undefined ? "" : ` · step ${event.step}`;
    const item = element("li", `${formatTime(event.unix_ms)} · ${event.event.replaceAll("_", " ")}${step}` +
      (event.text ? ` · ${event.text}` : ""), kBadEvents.has(event.event) ? "bad" : "");
    item.dataset.event = event.event;
    return item;
  });
  byId("events").replaceChildren(...items);
  const saves = events.filter((event) => event.event.startsWith("checkpoint_")).slice(-200).reverse();
  byId("checkpoints").replaceChildren(...saves.map((event) => element("li",
    `step ${event.step}: ${event.event.slice("checkpoint_".length)}` +
    (event.seconds === undefined ? "" : ` after ${formatSeconds(event.seconds)}`) +
    (event.size_bytes === undefined ? "" : `, ${formatBytes(event.size_bytes)}`) +
    ` · ${formatTime(event.unix_ms)}`, event.event === "checkpoint_failed" ? "bad" : "")));
}
