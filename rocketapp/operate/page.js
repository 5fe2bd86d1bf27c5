"use strict";
const say = (state) => { if (state) document.body.dataset.state = state; else delete document.body.dataset.state; };
const again = async () => {
  if (!document.hidden) try {
    if (!getSelection().isCollapsed) say("held");
    else {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      const focused = document.activeElement && document.activeElement.id;
      for (const one of document.querySelectorAll("details[open]")) {
        const same = next.getElementById(one.id);
        if (same) same.open = true;
      }
      document.title = next.title;
      document.body.replaceChildren(...next.body.childNodes);
      say("");
      if (focused) { const same = document.getElementById(focused); if (same) same.focus(); }
    }
  } catch { say("lost"); }
  setTimeout(again, SECONDS);
};
setTimeout(again, SECONDS);
