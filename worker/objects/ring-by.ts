/** Sees to it that the alarm of an object rings by this moment, at the latest. */
export async function ringBy(storage: DurableObjectStorage, atMs: number): Promise<void> {
  const set = await storage.getAlarm();
  if (set === null || set > atMs) await storage.setAlarm(atMs);
}
