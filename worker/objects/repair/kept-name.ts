/** Name of the snapshot to which the failed attempts of a run go back. */
export function keptName(repairRunId: string): string {
  return `before ${repairRunId}`;
}
