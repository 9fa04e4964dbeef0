/**
 * A namespace of objects as their callers see it. The runtime's own generic is not used: it would pull the classes, and
 * with them their imports, into `env.ts`, and it turns `unknown` in a result into `never`.
 */
export interface ObjectNamespace<Port> {
  getByName(name: string): Port & { fetch(request: Request): Promise<Response> };
}
