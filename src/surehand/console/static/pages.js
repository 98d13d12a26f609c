// The pages, one line each: a name for the address, a title, the module.

export const PAGES = [
  { name: "live", title: "Live", icon: "●", load: () => import("./pages/live.js") },
  { name: "questions", title: "Questions", icon: "?", load: () => import("./pages/questions.js") },
  { name: "changes", title: "Changes", icon: "↺", load: () => import("./pages/changes.js") },
  { name: "policy", title: "Policy", icon: "§", load: () => import("./pages/policy.js") },
  { name: "tools", title: "Tools", icon: "⚒", load: () => import("./pages/tools.js") },
  { name: "work", title: "Work", icon: "▤", load: () => import("./pages/work.js") },
  { name: "figures", title: "Figures", icon: "◔", load: () => import("./pages/figures.js") },
  { name: "audit", title: "Audit", icon: "✓", load: () => import("./pages/audit.js") },
  { name: "api", title: "API", icon: "{}", load: () => import("./pages/api.js") },
];
