// Searching is a worker's, and browsers start none for a page that is read from a disk. There a hidden frame stands in.

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = (this.inner = frame.contentWindow);
      inner.said = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => (inner.ready = resolve));
      inner.document.write(
        "<script>postMessage = (data) => said(data); importScripts = () => {};</script>"
        + `<script src="${url}" onload="ready()"></script>`);
      inner.document.close();
    }

    async postMessage(data) {
      await this.ready;
      this.inner.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {}
  };
}
