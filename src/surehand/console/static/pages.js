// The pages, one line each: a name for the address, a title, an icon (lines in a square of 24), the module.

export const PAGES = [
  { name: "live", title: "Live", icon: "M3 12h4l3-8 4 16 3-8h4", load: () => import("./pages/live.js") },
  { name: "questions", title: "Questions", icon: "M20 4H4v12h4v4l5-4h7zM9.8 8.4a2.2 2.2 0 1 1 3 2c-.6.3-.8.7-.8 1.2M12 13.6v.1", load: () => import("./pages/questions.js") },
  { name: "changes", title: "Changes", icon: "M4 4v5h5M4.5 9a8 8 0 1 1-.5 4M12 8v4l3 2", load: () => import("./pages/changes.js") },
  { name: "policy", title: "Policy", icon: "M12 3l8 3v5c0 5-3.4 8.4-8 10-4.6-1.6-8-5-8-10V6zM9 11.5l2.2 2.2 4-4", load: () => import("./pages/policy.js") },
  { name: "tools", title: "Tools", icon: "M15 4a5 5 0 0 0-5.6 6.7L3.6 16.5a2.3 2.3 0 0 0 3.9 3.9l5.8-5.8A5 5 0 0 0 20 9l-3 3-3.5-1.5L12 7z", load: () => import("./pages/tools.js") },
  { name: "work", title: "Work", icon: "M4 6h16v4H4zM4 14h16v4H4zM7.5 8v.1M7.5 16v.1", load: () => import("./pages/work.js") },
  { name: "figures", title: "Figures", icon: "M3 20h18M6 20v-7M12 20V5M18 20v-10", load: () => import("./pages/figures.js") },
  { name: "audit", title: "Audit", icon: "M6 3h8l4 4v14H6zM14 3v4h4M9 14l2.2 2.2 4-4", load: () => import("./pages/audit.js") },
  { name: "api", title: "API", icon: "M8 6l-5 6 5 6M16 6l5 6-5 6", load: () => import("./pages/api.js") },
];
