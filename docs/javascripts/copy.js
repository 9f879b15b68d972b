// The button at a block of commands copies the commands, without prompts and without what they print.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest("[data-clipboard-target]");
    const block = button && button.closest(".language-console");
    if (!block) return;
    const commands = [];
    let goesOn = false;
    for (const line of block.querySelector("code").textContent.split("\n")) {
      if (line.startsWith("$ ")) commands.push(line.slice(2));
      else if (goesOn) commands.push(line);
      goesOn = (goesOn || line.startsWith("$ ")) && line.endsWith("\\");
    }
    button.setAttribute("data-clipboard-text", commands.join("\n") + "\n");
  },
  true, // before the theme's own listener reads the attribute
);
