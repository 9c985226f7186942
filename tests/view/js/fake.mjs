// A canvas that draws nothing, for scenes without a browser.

const answers = { getProgramParameter: true, getExtension: null, isContextLost: false, getAttribLocation: -1 };

export const canvas = () => ({
  addEventListener() {},
  getContext: () => new Proxy({}, { get: (_, name) => () => (name in answers ? answers[name] : {}) }),
});
