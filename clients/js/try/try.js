import { connect, Player } from "../js/index.js";

const [form, text, key, stop] = ["form", "text", "key", "stop"].map((id) => document.getElementById(id));
const show = (id, words) => (document.getElementById(id).textContent = words);
const ms = (value) => (value === null ? "–" : `${Math.round(value)} ms`);
let player, client, clientKey;

form.onsubmit = async (event) => {
  event.preventDefault();
  for (const id of ["packet", "sound", "heard", "note"]) show(id, "");
  try {
    player ??= await Player.create({ onBlocked: (error) => show("note", error.message) });
    if (clientKey !== key.value) client = client?.close();
    clientKey = key.value;
    client ??= await connect(new URL("../v1/tts", location), { apiKey: key.value || undefined });
    player.stop();
    const playback = player.play(client.context({ format: player.format }).speak(text.value), {
      onEvent: ({ type }) => type === "first_audio" && show("packet", ms(playback.firstPacketMs)),
      onFirstSound: (firstSoundMs) => show("sound", ms(firstSoundMs)),
      onWord: ({ word }) => document.getElementById("heard").append(`${word} `),
    });
    const { done } = await playback.finished;
    show("note", done.reason === "completed" ? player.degraded.join(" ") : "Interrupted.");
  } catch (error) {
    if (error.name.startsWith("Conn")) client = undefined;
    show("note", error.message);
  }
};

stop.onclick = () => player?.stop();
