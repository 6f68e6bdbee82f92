//! The schema (CDDL) of the qlog drafts in short form. `?` before a name marks an optional field,
//! `[T]` is a list, `[+T]` a non-empty list, `|` a choice, and quoted words are literals. A log
//! must not contain other fields.

/// Types that the drafts name, with their fields. Each type is a map.
#[rustfmt::skip]
pub(super) const MAPS: &[(&str, &[&str])] = &[
    ("LogFile", &[
        "file_schema: 'urn:ietf:params:qlog:file:sequential'",
        "serialization_format: 'application/qlog+json-seq'",
        "?title: text", "?description: text", "trace: TraceSeq",
    ]),
    ("TraceSeq", &[
        "?title: text", "?description: text", "?common_fields: CommonFields",
        "?vantage_point: VantagePoint", "event_schemas: [+text]",
    ]),
    ("CommonFields", &[
        "?time_format: 'relative_to_epoch'|'relative_to_previous_event'",
        "?reference_time: ReferenceTime", "?group_id: text",
    ]),
    ("ReferenceTime", &["clock_type: 'system'|'monotonic'", "epoch: text", "?wall_clock_time: text"]),
    ("VantagePoint", &["?name: text", "type: 'client'|'server'|'network'|'unknown'"]),
    ("Event", &["time: float", "name: text", "data: any", "?tuple: text"]),
    ("RawInfo", &["?length: u64", "?payload_length: u64", "?data: hex"]),
    ("TupleEndpointInfo", &[
        "?ip_v4: text", "?port_v4: u16", "?ip_v6: text", "?port_v6: u16", "?connection_ids: [+hex]",
    ]),
    ("ALPNIdentifier", &["?byte_value: hex", "?string_value: text"]),
    ("Token", &["?type: 'retry'|'resumption'", "?raw: RawInfo"]),
    // The draft requires the field stateless_reset_token. This table leaves it out, because a log
    // must not reveal the token to its readers.
    ("PreferredAddress", &[
        "?ip_v4: text", "?port_v4: u16", "?ip_v6: text", "?port_v6: u16", "connection_id: hex",
    ]),
    ("UnknownParameter", &["id: u64", "?value: hex"]),
    ("PacketHeader", &[
        "packet_type: PacketType", "?packet_type_bytes: u64", "?spin_bit: bool", "?key_phase: u64",
        "?key_phase_bit: bool", "?packet_number_length: u8", "?packet_number: u64",
        "?token: Token", "?length: u16", "?version: hex", "?scil: u8", "?dcil: u8", "?scid: hex",
        "?dcid: hex",
    ]),
    // These are the events of quic-events s.3 to 6.
    ("connection_started", &["local: TupleEndpointInfo", "remote: TupleEndpointInfo"]),
    ("connection_closed", &[
        "?initiator: Initiator", "?connection_error: TransportError", "?application_error: 'unknown'",
        "?error_code: u64", "?internal_code: u64", "?reason: text",
        "?trigger: 'idle_timeout'|'application'|'error'|'version_mismatch'|'stateless_reset'|\
         'aborted'|'unspecified'",
    ]),
    ("connection_id_updated", &["initiator: Initiator", "?old: hex", "?new: hex"]),
    ("spin_bit_updated", &["state: bool"]),
    ("connection_state_updated", &["?old: ConnectionState", "new: ConnectionState"]),
    ("tuple_assigned", &[
        "tuple_id: text", "?tuple_remote: TupleEndpointInfo", "?tuple_local: TupleEndpointInfo",
    ]),
    ("mtu_updated", &["?old: u32", "new: u32", "?done: bool"]),
    ("version_information", &[
        "?server_versions: [+hex]", "?client_versions: [+hex]", "?chosen_version: hex",
    ]),
    ("alpn_information", &[
        "?server_alpns: [ALPNIdentifier]", "?client_alpns: [ALPNIdentifier]",
        "?chosen_alpn: ALPNIdentifier",
    ]),
    ("parameters_set", &[
        "?initiator: Initiator", "?resumption_allowed: bool", "?early_data_enabled: bool",
        "?tls_cipher: text", "?original_destination_connection_id: hex",
        "?initial_source_connection_id: hex", "?retry_source_connection_id: hex",
        "?stateless_reset_token: token", "?preferred_address: PreferredAddress",
        "?disable_active_migration: bool",
        "?max_idle_timeout: u64", "?max_udp_payload_size: u64", "?ack_delay_exponent: u64",
        "?max_ack_delay: u64", "?active_connection_id_limit: u64", "?initial_max_data: u64",
        "?initial_max_stream_data_bidi_local: u64", "?initial_max_stream_data_bidi_remote: u64",
        "?initial_max_stream_data_uni: u64", "?initial_max_streams_bidi: u64",
        "?initial_max_streams_uni: u64", "?unknown_parameters: [UnknownParameter]",
        "?max_datagram_frame_size: u64", "?grease_quic_bit: bool", "?reset_stream_at: bool",
        "?initial_max_path_id: u32",
    ]),
    ("packet_sent", &[
        "header: PacketHeader", "?frames: [Frame]", "?raw: RawInfo",
        "?datagram_payload_checksum: u32", "?is_mtu_probe_packet: bool",
        "?trigger: 'retransmit_reordered'|'retransmit_timeout'|'pto_probe'|'retransmit_crypto'|\
         'cc_bandwidth_probe'",
    ]),
    ("packet_received", &[
        "header: PacketHeader", "?frames: [Frame]", "?supported_versions: [+hex]", "?raw: RawInfo",
        "?datagram_payload_checksum: u32", "?trigger: 'keys_available'",
    ]),
    ("packet_dropped", &[
        "?header: PacketHeader", "?raw: RawInfo", "?datagram_payload_checksum: u32",
        "?trigger: 'internal_error'|'rejected'|'unsupported'|'invalid'|'duplicate'|\
         'connection_unknown'|'decryption_failure'|'key_unavailable'|'general'",
    ]),
    ("packet_buffered", &[
        "?header: PacketHeader", "?raw: RawInfo", "?datagram_payload_checksum: u32",
        "?trigger: 'backpressure'|'keys_unavailable'",
    ]),
    ("packets_acked", &["?packet_number_space: PacketNumberSpace", "?packet_numbers: [+u64]"]),
    ("udp_datagrams_sent", UDP),
    ("udp_datagrams_received", UDP),
    ("stream_state_updated", &[
        "stream_id: u64", "?stream_type: StreamType", "?old: StreamState", "new: StreamState",
        "stream_side: 'sending'|'receiving'", "?trigger: Initiator",
    ]),
    ("migration_state_updated", &[
        "?old: MigrationState", "new: MigrationState", "?tuple_id: text",
        "?tuple_remote: TupleEndpointInfo", "?tuple_local: TupleEndpointInfo",
    ]),
    ("timer_updated", &[
        "?timer_type: 'ack'|'pto'|'loss_timeout'|'path_validation'|'handshake_timeout'|'idle_timeout'",
        "?timer_id: u64", "?packet_number_space: PacketNumberSpace",
        "event_type: 'set'|'expired'|'cancelled'", "?delta: float",
    ]),
    ("key_updated", KEY),
    ("key_discarded", KEY),
    ("recovery_parameters_set", &[
        "?reordering_threshold: u16", "?time_threshold: float", "timer_granularity: u16",
        "?initial_rtt: float", "?max_datagram_size: u32", "?initial_congestion_window: u64",
        "?minimum_congestion_window: u64", "?loss_reduction_factor: float",
        "?persistent_congestion_threshold: u16",
        // The draft permits "any number of unspecified fields". This field is specific to this
        // project.
        "?congestion_control: text",
    ]),
    ("recovery_metrics_updated", &[
        "?min_rtt: float", "?smoothed_rtt: float", "?latest_rtt: float", "?rtt_variance: float",
        "?pto_count: u16", "?congestion_window: u64", "?bytes_in_flight: u64", "?ssthresh: u64",
        "?packets_in_flight: u64", "?pacing_rate: u64",
    ]),
    ("congestion_state_updated", &["?old: text", "new: text", "?trigger: text"]),
    ("packet_lost", &[
        "?header: PacketHeader", "?frames: [Frame]", "?is_mtu_probe_packet: bool",
        "?trigger: 'reordering_threshold'|'time_threshold'|'pto_expired'",
    ]),
    ("marked_for_retransmit", &["frames: [+Frame]"]),
    ("ecn_state_updated", &["?old: ECNState", "new: ECNState"]),
];

const UDP: &[&str] =
    &["?count: u16", "?raw: [+RawInfo]", "?ecn: [+ECN]", "?datagram_payload_checksums: [+u32]"];

const KEY: &[&str] = &[
    "key_type: KeyType",
    "?old: hex",
    "?new: hex",
    "?key_phase: u64",
    "?trigger: 'tls'|'remote_update'|'local_update'",
];

/// Fields of the frames of quic-events s.8.13, in addition to `frame_type` and `?raw: RawInfo`.
/// `raw` is listed only where it is mandatory. Other frames are in no draft: this project extends
/// `$QuicFrame` by them.
#[rustfmt::skip]
pub(super) const FRAMES: &[(&str, &[&str])] = &[
    ("padding", &[]),
    ("ping", &[]),
    ("ack", &[
        "?ack_delay: float", "?acked_ranges: [+AckRange]", "?ect1: u64", "?ect0: u64", "?ce: u64",
    ]),
    ("reset_stream", &[
        "stream_id: u64", "error: 'unknown'", "?error_code: u64", "final_size: u64",
    ]),
    ("stop_sending", &["stream_id: u64", "error: 'unknown'", "?error_code: u64"]),
    ("crypto", &["offset: u64", "raw: RawInfo"]),
    ("new_token", &["token: Token"]),
    ("stream", &["stream_id: u64", "?offset: u64", "?fin: bool", "raw: RawInfo"]),
    ("max_data", &["maximum: u64"]),
    ("max_stream_data", &["stream_id: u64", "maximum: u64"]),
    ("max_streams", &["stream_type: StreamType", "maximum: u64"]),
    ("data_blocked", &["limit: u64"]),
    ("stream_data_blocked", &["stream_id: u64", "limit: u64"]),
    ("streams_blocked", &["stream_type: StreamType", "limit: u64"]),
    ("new_connection_id", &[
        "sequence_number: u64", "retire_prior_to: u64", "?connection_id_length: u8",
        "connection_id: hex", "?stateless_reset_token: token",
    ]),
    ("retire_connection_id", &["sequence_number: u64"]),
    ("path_challenge", &["?data: hex"]),
    ("path_response", &["?data: hex"]),
    ("connection_close", &[
        "?error_space: 'transport'|'application'", "?error: TransportError", "?error_code: u64",
        "?reason: text", "?reason_bytes: hex", "?trigger_frame_type: u64|text",
    ]),
    ("handshake_done", &[]),
    ("unknown", &["frame_type_bytes: u64"]),
    ("datagram", &["raw: RawInfo"]),
];

/// Enumerations of the drafts. Their values are separated by spaces.
#[rustfmt::skip]
pub(super) const ENUMS: &[(&str, &str)] = &[
    ("Initiator", "local remote"),
    ("PacketType", "initial handshake 0RTT 1RTT retry version_negotiation stateless_reset unknown"),
    ("PacketNumberSpace", "initial handshake application_data"),
    ("StreamType", "unidirectional bidirectional"),
    ("StreamState", "idle open closed half_closed_local half_closed_remote ready send data_sent \
        reset_sent reset_received receive size_known data_read reset_read data_received destroyed"),
    ("ConnectionState", "attempted handshake_started handshake_complete closed peer_validated \
        early_write handshake_confirmed closing draining"),
    ("MigrationState", "probing_started probing_abandoned probing_successful migration_started \
        migration_abandoned migration_complete"),
    ("KeyType", "server_initial_secret client_initial_secret server_handshake_secret \
        client_handshake_secret server_0rtt_secret client_0rtt_secret server_1rtt_secret \
        client_1rtt_secret"),
    ("ECN", "Not-ECT ECT(1) ECT(0) CE"),
    ("ECNState", "testing unknown failed capable"),
    ("TransportError", "no_error internal_error connection_refused flow_control_error \
        stream_limit_error stream_state_error final_size_error frame_encoding_error \
        transport_parameter_error connection_id_limit_error protocol_violation invalid_token \
        application_error crypto_buffer_exceeded key_update_error aead_limit_reached \
        no_viable_path unknown"),
];
