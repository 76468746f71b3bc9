/* Requests to the app's HTTP API and to the few views of this project. */

export const settings = JSON.parse(document.getElementById("chat-settings").textContent);

function token() {
  return /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1] ?? "";
}

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export async function request(address, { body, form, method, signal } = {}) {
  const headers = { Accept: "application/json, text/event-stream" };
  const isWrite = body !== undefined || form !== undefined || (method && method !== "GET");
  if (isWrite) headers["X-CSRFToken"] = token();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(address, {
    method: method ?? (isWrite ? "POST" : "GET"),
    headers,
    body: body !== undefined ? JSON.stringify(body) : form ? new URLSearchParams(form) : undefined,
    signal,
    redirect: isWrite ? "follow" : "error",
  });
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    throw new Refused(response.status, problem.detail ?? problem.title ?? `The server answered ${response.status}.`);
  }
  return response;
}

export async function json(address, options) {
  return (await request(address, options)).json();
}

/* An id as a segment of an address, as the API spells it. */
export function segment(id) {
  return encodeURIComponent(/^\.+$/.test(id) ? id.replaceAll(".", "~2") : id.replaceAll("~", "~0").replaceAll("/", "~1"));
}

export function idOf(written) {
  const signs = { "~0": "~", "~1": "/", "~2": "." };
  return decodeURIComponent(written).replace(/~[012]/g, (sign) => signs[sign]);
}

export function sessionUrl(id, rest = "") {
  return `${settings.api}sessions/${segment(id)}/${rest}`;
}

/* The session in the admin, which spells ids in a way of its own. */
export function adminUrl(id) {
  const quoted = id.replace(/[":/_#?;@&=+$,[\]<>%\n\\]/g, (sign) => `_${sign.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
  return `${settings.admin}${encodeURIComponent(quoted)}/change/`;
}

export async function enter() {
  if (settings.user) return;
  if (!settings.enter) {
    location.assign(`${settings.login}?next=${encodeURIComponent(location.pathname)}`);
    return;
  }
  await request(settings.enter, { form: {} });
  settings.user = "visitor";
}
