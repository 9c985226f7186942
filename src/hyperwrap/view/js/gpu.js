// WebGL2, as little of it as is needed.

/**
 * @typedef {{made: WebGLProgram, at: (uniform: string) => WebGLUniformLocation | null}} Program
 */

/**
 * A program, with its uniforms and attributes by name.
 * @param {WebGL2RenderingContext} gl @param {string} vertex @param {string} fragment @returns {Program}
 */
export function program(gl, vertex, fragment) {
  const made = /** @type {WebGLProgram} */ (gl.createProgram());
  for (const [kind, text] of /** @type {[number, string][]} */ ([[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]])) {
    const shader = /** @type {WebGLShader} */ (gl.createShader(kind));
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost()) {
    const logs = (gl.getAttachedShaders(made) ?? []).map((shader) => gl.getShaderInfoLog(shader));
    throw new Error(`${gl.getProgramInfoLog(made)} ${logs.join(" ")}`);
  }
  /** @type {Map<string, WebGLUniformLocation | null>} */
  const known = new Map();
  const at = (/** @type {string} */ name) => {
    if (!known.has(name)) known.set(name, gl.getUniformLocation(made, name));
    return known.get(name) ?? null;
  };
  return { made, at };
}

/** @param {WebGL2RenderingContext} gl @param {ArrayBufferView} values */
export function buffer(gl, values) {
  const made = gl.createBuffer();
  gl.bindBuffer(gl.ARRAY_BUFFER, made);
  gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
  return made;
}

/** A texture of four floats per texel, 256 wide. @param {WebGL2RenderingContext} gl @param {number} height */
export function frameTable(gl, height) {
  const made = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, made);
  gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA32F, 256, height);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
  return made;
}
