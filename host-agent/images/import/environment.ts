/** What of an image's own environment its sandboxes have: all but what says who and where the session is. */

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const OF_THE_SESSION: ReadonlySet<string> = new Set([
  'HOME',
  'USER',
  'LOGNAME',
  'HOSTNAME',
  'PWD',
  'SHELL',
  'TERM',
]);
const MAX_VARIABLES = 256;
const MAX_VARIABLE_BYTES = 32 * 1024;

export function imageEnvironment(variables: readonly string[]): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const variable of variables.slice(0, MAX_VARIABLES)) {
    const equals = variable.indexOf('=');
    const name = variable.slice(0, Math.max(0, equals));
    const isUsable = NAME.test(name) && !OF_THE_SESSION.has(name) && !variable.includes('\0');
    if (isUsable && Buffer.byteLength(variable) <= MAX_VARIABLE_BYTES)
      environment[name] = variable.slice(equals + 1);
  }
  return environment;
}
