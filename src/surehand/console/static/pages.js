// The pages, one line each: a name for the address, a title, the module.

export const PAGES = [
  { name: "live", title: "Live", icon: "●", load: () => import("./pages/live.js") },
  { name: "questions", title: "Questions", icon: "?", load: () => import("./pages/questions.js") },
];
