/** What a source does that cannot be taken: the message may be shown to whose source it is. */
export class ServerFault extends Error {
  override name = 'ServerFault';
}
