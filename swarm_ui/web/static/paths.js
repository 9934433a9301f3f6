// Where the pages are.

/** [pattern, page module, name in the rail, icon, key after g] */
export const PAGES = [
  ["/", "now", "Now", "now", "n"],
  ["/graph", "graph", "Graph", "graph", "g"],
  ["/wall", "wall", "Wall", "wall", "w"],
  ["/missions", "missions", "Missions", "missions", "m"],
  ["/inbox", "inbox", "Inbox", "inbox", "i"],
  ["/events", "events", "Events", "events", "e"],
  ["/pulls", "pulls", "Pulls", "pulls", "p"],
  ["/health", "health", "Health", "health", "h"],
  ["/i/{id}", "instance"],
  ["/missions/{id}", "missions"],
  ["/threads/{id}", "thread"],
];

/** The page of an instance. */
export const instancePath = (id) => `/i/${encodeURIComponent(id)}`;

/** The first page with this instance selected. */
export const nowPath = (id) => `/?i=${encodeURIComponent(id)}`;
