/** Who asks: from the verified access token only. */
export interface Caller {
  tenant: string;
  subject: string;
}
