// Plugin of hermes-memory. `hermes-memory capture uninstall opencode` deletes this file.
import { spawn } from "node:child_process"

const COMMAND = ["COMMAND"]

function run(action, event, timeout) {
  return new Promise((resolve) => {
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), action], { stdio: ["pipe", "pipe", "inherit"], timeout })
    let answer = ""
    child.stdout.on("data", (chunk) => (answer += chunk))
    child.stdin.on("error", () => {})
    child.on("error", () => resolve(""))
    child.on("close", () => resolve(answer))
    child.stdin.end(JSON.stringify(event))
  })
}

export const HermesMemory = async ({ directory }) => {
  const recalled = new Map()
  const event = (sessionID) => ({ session_id: sessionID, cwd: directory })
  await run("start", event(""), 10000)
  return {
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const prompt = parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join("\n")
      const context = prompt && (await run("recall", { ...event(sessionID), prompt }, 2000))
      if (context) recalled.set(message.id, context)
    },
    // The context is in the request alone: opencode stores the message as the person wrote it.
    "experimental.chat.messages.transform": async (_, { messages }) => {
      for (const { info, parts } of messages) {
        const last = parts.findLast((part) => part.type === "text")
        const context = recalled.get(info.id)
        if (last && context && !last.text.endsWith(context)) last.text += "\n\n" + context
      }
    },
    "experimental.session.compacting": async ({ sessionID }) => void (await run("append", event(sessionID), 5000)),
    event: async ({ event: { type, properties } }) => {
      if (type === "session.idle") await run("append", event(properties.sessionID), 5000)
      if (type === "session.deleted") await run("end", event(properties.info.id), 5000)
    },
  }
}
