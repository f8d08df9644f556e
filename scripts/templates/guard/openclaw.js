// rgt guard for OpenClaw: every exec is judged by the same program as in the other agents; exit 2 refuses.
import { spawnSync } from "node:child_process";

const HOOK = "{hook}";

export default {
  id: "rgt-guard",
  name: "rgt guard",
  register(api) {
    api.on("before_tool_call", async (event) => {
      const params = event.params ?? {};
      if (typeof params.command !== "string") return;
      const input = JSON.stringify({ tool_name: event.toolName, tool_input: params, cwd: params.workdir ?? process.cwd() });
      const done = spawnSync("python3", ["-I", "-S", HOOK], { input, timeout: 10000, encoding: "utf8" });
      if (done.status === 2) return { block: true, blockReason: done.stderr.trim() };
      if (done.stderr) console.error(done.stderr.trim());
    });
  },
};
