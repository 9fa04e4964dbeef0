/** Versions of runsc whose flags and behaviour this driver was checked against. */
export const KNOWN_RELEASES: readonly string[] = ['20240729.0'];

export interface RunscVersion {
  /** As the program prints it: Debian's builds say `0.0~20240729.0`, gVisor's `release-20240729.0`. */
  printed: string;
  release: string;
}

export function parseVersion(output: string): RunscVersion | undefined {
  const printed = /^runsc version (\S{1,64})$/m.exec(output)?.[1];
  const release = /^(?:release-|0\.0~)(\d{8}\.\d+)$/.exec(printed ?? '')?.[1];
  if (printed === undefined || release === undefined) return undefined;
  return { printed, release };
}
