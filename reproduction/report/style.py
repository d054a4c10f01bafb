"""How the page looks, in light and in dark, and the one thing it does: sort a table by the column that is clicked."""

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --page: #fff; --line: #d5d5d5; --soft: #f4f5f6; --good: #00694e;
  --part: #7a5b00; --bad: #a33a00; --open: #5f5f5f; --link: #1f5fa8; --dot: #1f5fa8; --theirs: #b3420a;
  --shade: #0003; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --page: #16181a; --line: #41464b; --soft: #22262a;
  --good: #5fd3ae; --part: #e3bf5a; --bad: #ff9a66; --open: #a8a8a8; --link: #7fb2ec; --dot: #7fb2ec;
  --theirs: #ffa25f; --shade: #fff4; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 75rem; font: 1rem/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--page); overflow-wrap: break-word; }
a { color: var(--link); }
h1, h2, h3, h4 { line-height: 1.2; } h2 { margin-top: 3rem; border-bottom: 2px solid var(--line); }
h3 { margin-top: 2.5rem; }
p, figcaption { max-width: 48rem; }
/* A shade at the side to which a wide table goes on, hidden by a cover that moves with the table. */
.wide { overflow-x: auto; margin: 1rem 0; background:
  linear-gradient(to right, var(--page) 40%, transparent) left / 2rem 100% no-repeat local,
  linear-gradient(to left, var(--page) 40%, transparent) right / 2rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / .6rem 100% no-repeat,
  linear-gradient(to left, var(--shade), transparent) right / .6rem 100% no-repeat; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .3rem 0; }
/* As wide as the page at most, and seen wherever a wide table is scrolled to. */
caption > span { display: inline-block; position: sticky; left: 0; max-width: min(48rem, 100vw - 2rem); }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap; }
th { white-space: normal; background: var(--soft); min-width: 2.8rem; } .words { text-align: left; }
td.long { white-space: normal; min-width: 11rem; }
code { white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] button::after { content: " ▲"; } th[aria-sort=descending] button::after { content: " ▼"; }
.held { color: var(--good); } .in-part { color: var(--part); } .did-not-hold { color: var(--bad); }
.undecided { color: var(--open); }
figure { margin: 1rem 0; overflow-x: auto; }
img { width: var(--width); max-width: 100%; height: auto; background: #fff; padding: .5rem; border-radius: .3rem; }
/* Pictures of several panels are scrolled where they would be too small. */
@media (max-width: 46em) { img { width: max(100%, .57 * var(--width)); max-width: none; } }
svg { display: block; width: 100%; height: auto; } svg.ratio { max-width: 22rem; } svg.overview { max-width: 42rem; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .name { font-weight: 600; }
svg .grid { stroke: var(--line); } svg .one { stroke: var(--open); stroke-dasharray: 3 3; }
svg .interval { stroke: var(--dot); stroke-width: 3; stroke-linecap: round; } svg .dot { fill: var(--dot); }
svg .seed { fill-opacity: .55; } svg .median { stroke: var(--ink); stroke-width: 2; }
svg .published { fill: none; stroke: var(--theirs); stroke-width: 2; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: .8rem;
  padding: 0; list-style: none; }
.cards li { border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem; min-width: 0; }
.cards p { margin: .2rem 0; } .cards .verdict { font-weight: 600; } .small, details { font-size: .85rem; }
.summary { list-style: none; padding: 0; max-width: 60rem; } .summary li { padding: .25rem 0;
  border-bottom: 1px solid var(--line); }
.chip { display: inline-block; margin-left: .5rem; font-weight: 600; white-space: nowrap; text-decoration: none; }
nav ul { columns: 18rem; column-gap: 2.5rem; padding-left: 1.2rem; } nav li { break-inside: avoid; }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  table.querySelectorAll("th button").forEach((button, column) => button.addEventListener("click", () => {
    const heading = button.parentElement, down = heading.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[column].textContent.trim();
    const order = (a, b) => {
      const x = parseFloat(key(a)), y = parseFloat(key(b));
      return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) || key(a).localeCompare(key(b)) : x - y;
    };
    [...body.rows].sort((a, b) => down ? order(b, a) : order(a, b)).forEach(row => body.append(row));
  }));
}
"""
