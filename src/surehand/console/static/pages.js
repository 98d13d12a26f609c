// The pages, one line each: a name for the address, a title, the module. `badge` names a count shown beside the title.

export const PAGES = [
  { name: "live", title: "Live", icon: "●", load: () => import("./pages/live.js") },
];
