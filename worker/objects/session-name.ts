/** Name of a session's object. A tenant holds no colon, so the name reads one way only. */
export function sessionObjectName(tenant: string, sessionId: string): string {
  return `${tenant}:${sessionId}`;
}
