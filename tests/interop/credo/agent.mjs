// An agent of credo-ts on loopback: node agent.mjs FOLDER LABEL [hidden]
//
// FOLDER holds node_modules. A hidden agent has no endpoint. A line on standard input is {"id", "do", "with": {…}}, and its answer on standard output
// {"id", "is"} or {"id", "error"}; a line with {"event", …} tells what happened. credo's package for Node has no
// release of this version, so the inbound transports are ours; everything else is theirs.
import { EventEmitter } from 'node:events'
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const [folder, label, hidden] = process.argv.slice(2)
const require = createRequire(`${folder}/package.json`)
const load = (name) => import(pathToFileURL(require.resolve(name)))

await load('reflect-metadata')
// Registers itself in a CommonJS module, whose exports are read once, when the first ES module imports it.
const { askar } = await load('@openwallet-foundation/askar-nodejs')
const { Agent, ConsoleLogger, LogLevel } = await load('@credo-ts/core')
const { AskarModule } = await load('@credo-ts/askar')
const didcomm = await load('@credo-ts/didcomm')
const WebSocket = require('ws')

// Standard output is for answers.
for (const level of ['debug', 'info', 'log', 'trace']) console[level] = console.error
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)

class HttpSession {
  type = 'http'

  constructor(id, response, mediaType) {
    Object.assign(this, { id, response, mediaType })
  }

  async send(_, envelope) {
    if (this.response.headersSent) throw new Error('the session is closed')
    this.response.writeHead(200, { 'Content-Type': this.mediaType }).end(JSON.stringify(envelope))
  }

  async close() {
    if (!this.response.headersSent) this.response.writeHead(200).end()
  }
}

class WebSocketSession {
  type = 'WebSocket'

  constructor(id, socket) {
    Object.assign(this, { id, socket })
  }

  async send(_, envelope) {
    if (this.socket.readyState !== WebSocket.OPEN) throw new Error('the session is closed')
    this.socket.send(JSON.stringify(envelope))
  }

  async close() {
    this.socket.close()
  }
}

// HTTP and WebSocket on one port.
class Inbound {
  server = createServer()
  count = 0

  async listen() {
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve))
    return this.server.address().port
  }

  async start(context) {
    const sessions = context.dependencyManager.resolve(didcomm.DidCommTransportService)
    const receiver = context.dependencyManager.resolve(didcomm.DidCommMessageReceiver)
    const receive = (body, session) => receiver.receiveMessage(JSON.parse(body), { session })
    const trouble = (error) => say({ event: 'trouble', why: `${error}` })

    this.server.on('request', async (request, response) => {
      const mediaType = request.headers['content-type']
      if (!Object.values(didcomm.DidCommMimeType).includes(mediaType)) return response.writeHead(415).end()
      const session = new HttpSession(`http-${(this.count += 1)}`, response, mediaType)
      response.once('close', () => sessions.removeSession(session))
      try {
        const parts = []
        for await (const part of request) parts.push(part)
        await receive(Buffer.concat(parts).toString(), session)
        await session.close()
      } catch (error) {
        trouble(error)
        if (!response.headersSent) response.writeHead(500).end()
      }
    })
    new WebSocket.Server({ server: this.server }).on('connection', (socket) => {
      const session = new WebSocketSession(`ws-${(this.count += 1)}`, socket)
      socket.on('close', () => sessions.removeSession(session))
      socket.on('message', (body) => receive(body.toString(), session).catch(trouble))
    })
  }

  async stop() {
    this.server.close()
    this.server.closeAllConnections()
  }
}

const inbound = new Inbound()
const port = await inbound.listen()
const agent = new Agent({
  config: { logger: new ConsoleLogger(LogLevel[process.env.CREDO_LOG ?? 'off']) },
  dependencies: { EventEmitterClass: EventEmitter, fetch, WebSocketClass: WebSocket, FileSystem: class {} },
  modules: {
    askar: new AskarModule({
      askar,
      store: {
        id: label,
        key: label,
        keyDerivationMethod: 'kdf:argon2i:int',
        database: { type: 'sqlite', config: { inMemory: true } },
      },
    }),
    didcomm: new didcomm.DidCommModule({
      endpoints: hidden ? [] : [`http://127.0.0.1:${port}`, `ws://127.0.0.1:${port}`],
      transports: {
        inbound: hidden ? [] : [inbound],
        outbound: [new didcomm.DidCommHttpOutboundTransport(), new didcomm.DidCommWsOutboundTransport()],
      },
      connections: { autoAcceptConnections: true },
      mediationRecipient: { mediatorPollingInterval: 500 },
      mediator: {
        autoAcceptMediationRequests: true,
        messageForwardingStrategy: didcomm.DidCommMessageForwardingStrategy.QueueAndLiveModeDelivery,
      },
    }),
  },
})
await agent.initialize()
const { connections, oob, basicMessages, discovery, mediationRecipient } = agent.modules.didcomm

const tell = (type, read) => agent.events.on(type, ({ payload }) => {
  const facts = read(payload)
  if (facts) say(facts)
})
tell(didcomm.DidCommConnectionEventTypes.DidCommConnectionStateChanged, ({ connectionRecord: record }) => ({
  event: 'connection', connection: record.id, state: record.state, invitation: record.outOfBandId, label: record.theirLabel,
}))
tell(didcomm.DidCommConnectionEventTypes.DidCommConnectionDidRotated, ({ connectionRecord, ourDid }) => ({
  event: 'rotated', connection: connectionRecord.id, who: ourDid ? 'credo' : 'peer',
}))
tell(didcomm.DidCommBasicMessageEventTypes.DidCommBasicMessageStateChanged, ({ basicMessageRecord: record }) =>
  record.role === 'receiver' && { event: 'message', connection: record.connectionId, text: record.content }
)
tell(didcomm.DidCommTrustPingEventTypes.DidCommTrustPingResponseReceivedEvent, ({ connectionRecord, message }) => ({
  event: 'pong', connection: connectionRecord.id, thread: message.threadId,
}))

const accept = async (url) => {
  const { connectionRecord } = await oob.receiveInvitationFromUrl(url, { label })
  return connections.returnWhenIsConnected(connectionRecord.id, { timeoutMs: 60_000 })
}
const actions = {
  // Returns the URL of a new invitation, and the id that the events of its connection name.
  async invite({ handshake }) {
    const handshakeProtocols = handshake && [didcomm.DidCommHandshakeProtocol[handshake]]
    const record = await oob.createInvitation({ label, handshakeProtocols })
    return { url: record.outOfBandInvitation.toUrl({ domain: `http://127.0.0.1:${port}` }), invitation: record.id }
  },
  accept: async ({ url }) => (await accept(url)).id,
  message: async ({ connection, text }) => (await basicMessages.sendMessage(connection, text)).threadId,
  ping: async ({ connection }) => (await connections.sendPing(connection)).threadId,
  rotate: async ({ connection }) => (await connections.rotate({ connectionId: connection })).newDid,
  hangup: async ({ connection }) => connections.hangup({ connectionId: connection }),
  async features({ connection, version }) {
    const { features } = await discovery.queryFeatures({
      connectionId: connection,
      protocolVersion: version,
      queries: [{ featureType: 'protocol', match: '*' }],
      awaitDisclosures: true,
      awaitDisclosuresTimeoutMs: 60_000,
    })
    return features.map((feature) => feature.id)
  },
  // Connects with a mediator and receives through it from now on.
  async mediate({ url, strategy }) {
    const mediator = await mediationRecipient.provision(await accept(url))
    await mediationRecipient.initiateMessagePickup(mediator, didcomm.DidCommMediatorPickupStrategy[strategy])
    return mediator.endpoint
  },
}

createInterface({ input: process.stdin })
  .on('line', async (line) => {
    const question = JSON.parse(line)
    try {
      say({ id: question.id, is: (await actions[question.do](question.with)) ?? null })
    } catch (error) {
      say({ id: question.id, error: error.stack })
    }
  })
  .on('close', () => process.exit())
say({ event: 'ready' })
