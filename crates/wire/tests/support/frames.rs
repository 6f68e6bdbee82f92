//! Examples of every frame. They are the single table of frames for the tests of this crate, of the
//! logs of `equic-transport`, and of its hostile peers. A new frame gets a row here.
#![allow(dead_code, reason = "each test program uses what it needs")]

/// Frame types with the same properties.
pub(crate) struct Row {
    /// The frame types.
    pub types: &'static [u64],
    /// Packets that may contain the frame, in the notation of RFC 9000 table 3: `I` Initial, `H`
    /// Handshake, `0` 0-RTT, `1` 1-RTT, and `_` for packets that may not.
    pub packets: &'static str,
    /// Properties of the frame: `a` ack-eliciting, `f` in flight, `p` probing, `c` flow-controlled.
    pub marks: &'static str,
    /// True if only a server may send the frame.
    pub server_only: bool,
    /// At least one frame of each type.
    pub examples: &'static [Example],
}

/// A frame, and what a log shows of it if a 1-RTT packet contains it and ack_delay_exponent is 3.
pub(crate) struct Example {
    /// The frame in hexadecimal.
    pub bytes: &'static str,
    /// The frame in a qlog file.
    pub json: &'static str,
    /// The frame in a text log.
    pub text: &'static str,
}

impl Example {
    /// Returns the bytes of the frame.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let digits = self.bytes.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
    }
}

/// A frame of unknown type. It extends to the end of its packet.
pub(crate) const UNKNOWN: Example = Example {
    bytes: "6f5a010203",
    json: r#"{"frame_type":"unknown","frame_type_bytes":12122}"#,
    text: "UNKNOWN(0x2f5a)",
};

/// All known frame types.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = &[
    Row {
        types: &[0x00],
        packets: "IH01",
        marks: "_fp_",
        server_only: false,
        examples: &[
            Example {
                bytes: "000000",
                json: r#"{"frame_type":"padding","raw":{"payload_length":3}}"#,
                text: "PADDING(3)",
            },
        ],
    },
    Row {
        types: &[0x01],
        packets: "IH01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example { bytes: "01", json: r#"{"frame_type":"ping"}"#, text: "PING" },
        ],
    },
    Row {
        types: &[0x02, 0x03],
        packets: "IH_1",
        marks: "____",
        server_only: false,
        examples: &[
            Example {
                bytes: "020543e801000003",
                json: r#"{"frame_type":"ack","ack_delay":8.0,"acked_ranges":[[5],[0,3]]}"#,
                text: "ACK(5,0-3 8ms)",
            },
            Example {
                bytes: "021400050000000000000000000000",
                json: concat!(
                    r#"{"frame_type":"ack","ack_delay":0.0"#,
                    r#","acked_ranges":[[20],[18],[16],[14],[12],[10]]}"#,
                ),
                text: "ACK(20,18,16,14,... 0ns)",
            },
            Example {
                bytes: "030543e801000003070809",
                json: concat!(
                    r#"{"frame_type":"ack","ack_delay":8.0,"acked_ranges":[[5],[0,3]]"#,
                    r#","ect1":8,"ect0":7,"ce":9}"#,
                ),
                text: "ACK(5,0-3 8ms)",
            },
        ],
    },
    Row {
        types: &[0x04],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "0404074064",
                json: concat!(
                    r#"{"frame_type":"reset_stream","stream_id":4,"error":"unknown""#,
                    r#","error_code":7,"final_size":100}"#,
                ),
                text: "RESET_STREAM(4 error 7 at 100)",
            },
        ],
    },
    Row {
        types: &[0x05],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "050807",
                json: concat!(
                    r#"{"frame_type":"stop_sending","stream_id":8,"error":"unknown""#,
                    r#","error_code":7}"#,
                ),
                text: "STOP_SENDING(8 error 7)",
            },
        ],
    },
    Row {
        types: &[0x06],
        packets: "IH_1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "06404003616263",
                json: r#"{"frame_type":"crypto","offset":64,"raw":{"length":3}}"#,
                text: "CRYPTO(64..67)",
            },
        ],
    },
    Row {
        types: &[0x07],
        packets: "___1",
        marks: "af__",
        server_only: true,
        examples: &[
            Example {
                bytes: "0705746f6b656e",
                json: r#"{"frame_type":"new_token","token":{"raw":{"length":5}}}"#,
                text: "NEW_TOKEN(5 bytes)",
            },
        ],
    },
    Row {
        types: &[0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f],
        packets: "__01",
        marks: "af_c",
        server_only: false,
        examples: &[
            Example {
                bytes: "08046162",
                json: r#"{"frame_type":"stream","stream_id":4,"offset":0,"raw":{"length":2}}"#,
                text: "STREAM(4 0..2)",
            },
            Example {
                bytes: "0904",
                json: concat!(
                    r#"{"frame_type":"stream","stream_id":4,"offset":0,"fin":true"#,
                    r#","raw":{"length":0}}"#,
                ),
                text: "STREAM(4 0..0 FIN)",
            },
            Example {
                bytes: "0a040161",
                json: r#"{"frame_type":"stream","stream_id":4,"offset":0,"raw":{"length":1}}"#,
                text: "STREAM(4 0..1)",
            },
            Example {
                bytes: "0b0400",
                json: concat!(
                    r#"{"frame_type":"stream","stream_id":4,"offset":0,"fin":true"#,
                    r#","raw":{"length":0}}"#,
                ),
                text: "STREAM(4 0..0 FIN)",
            },
            Example {
                bytes: "0c04406461",
                json: r#"{"frame_type":"stream","stream_id":4,"offset":100,"raw":{"length":1}}"#,
                text: "STREAM(4 100..101)",
            },
            Example {
                bytes: "0d04406461",
                json: concat!(
                    r#"{"frame_type":"stream","stream_id":4,"offset":100,"fin":true"#,
                    r#","raw":{"length":1}}"#,
                ),
                text: "STREAM(4 100..101 FIN)",
            },
            Example {
                bytes: "0e0440640161",
                json: r#"{"frame_type":"stream","stream_id":4,"offset":100,"raw":{"length":1}}"#,
                text: "STREAM(4 100..101)",
            },
            Example {
                bytes: "0f0440640161",
                json: concat!(
                    r#"{"frame_type":"stream","stream_id":4,"offset":100,"fin":true"#,
                    r#","raw":{"length":1}}"#,
                ),
                text: "STREAM(4 100..101 FIN)",
            },
        ],
    },
    Row {
        types: &[0x10],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "1080100000",
                json: r#"{"frame_type":"max_data","maximum":1048576}"#,
                text: "MAX_DATA(1048576)",
            },
        ],
    },
    Row {
        types: &[0x11],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "110480100000",
                json: r#"{"frame_type":"max_stream_data","stream_id":4,"maximum":1048576}"#,
                text: "MAX_STREAM_DATA(4 1048576)",
            },
        ],
    },
    Row {
        types: &[0x12, 0x13],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "124064",
                json: r#"{"frame_type":"max_streams","stream_type":"bidirectional","maximum":100}"#,
                text: "MAX_STREAMS(100)",
            },
            Example {
                bytes: "134064",
                json: concat!(
                    r#"{"frame_type":"max_streams","stream_type":"unidirectional""#,
                    r#","maximum":100}"#,
                ),
                text: "MAX_STREAMS(100)",
            },
        ],
    },
    Row {
        types: &[0x14],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "144064",
                json: r#"{"frame_type":"data_blocked","limit":100}"#,
                text: "DATA_BLOCKED(100)",
            },
        ],
    },
    Row {
        types: &[0x15],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "15044064",
                json: r#"{"frame_type":"stream_data_blocked","stream_id":4,"limit":100}"#,
                text: "STREAM_DATA_BLOCKED(4 100)",
            },
        ],
    },
    Row {
        types: &[0x16, 0x17],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "1603",
                json: r#"{"frame_type":"streams_blocked","stream_type":"bidirectional","limit":3}"#,
                text: "STREAMS_BLOCKED(3)",
            },
            Example {
                bytes: "1703",
                json: concat!(
                    r#"{"frame_type":"streams_blocked","stream_type":"unidirectional""#,
                    r#","limit":3}"#,
                ),
                text: "STREAMS_BLOCKED(3)",
            },
        ],
    },
    Row {
        types: &[0x18],
        packets: "__01",
        marks: "afp_",
        server_only: false,
        examples: &[
            Example {
                bytes: "18050204deadbeef000102030405060708090a0b0c0d0e0f",
                json: concat!(
                    r#"{"frame_type":"new_connection_id","sequence_number":5"#,
                    r#","retire_prior_to":2,"connection_id_length":4"#,
                    r#","connection_id":"deadbeef"}"#,
                ),
                text: "NEW_CONNECTION_ID(5 deadbeef)",
            },
        ],
    },
    Row {
        types: &[0x19],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "1904",
                json: r#"{"frame_type":"retire_connection_id","sequence_number":4}"#,
                text: "RETIRE_CONNECTION_ID(4)",
            },
        ],
    },
    Row {
        types: &[0x1a],
        packets: "__01",
        marks: "afp_",
        server_only: false,
        examples: &[
            Example {
                bytes: "1a3132333435363738",
                json: r#"{"frame_type":"path_challenge","data":"3132333435363738"}"#,
                text: "PATH_CHALLENGE",
            },
        ],
    },
    Row {
        types: &[0x1b],
        packets: "___1",
        marks: "afp_",
        server_only: false,
        examples: &[
            Example {
                bytes: "1b3837363534333231",
                json: r#"{"frame_type":"path_response","data":"3837363534333231"}"#,
                text: "PATH_RESPONSE",
            },
        ],
    },
    Row {
        types: &[0x1c],
        packets: "IH01",
        marks: "____",
        server_only: false,
        examples: &[
            Example {
                bytes: "1c0a0603616263",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"transport""#,
                    r#","error":"protocol_violation","trigger_frame_type":6,"reason":"abc"}"#,
                ),
                text: r#"CLOSE(PROTOCOL_VIOLATION: "abc")"#,
            },
            Example {
                bytes: "1c000000",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"transport""#,
                    r#","error":"no_error","reason":""}"#,
                ),
                text: r#"CLOSE(NO_ERROR: "")"#,
            },
            Example {
                bytes: "1c41280600",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"transport""#,
                    r#","error":"crypto_error_0x128","trigger_frame_type":6,"reason":""}"#,
                ),
                text: r#"CLOSE(CRYPTO_ERROR (TLS alert 40): "")"#,
            },
            Example {
                bytes: "1c42000600",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"transport""#,
                    r#","error":"unknown","error_code":512,"trigger_frame_type":6"#,
                    r#","reason":""}"#,
                ),
                text: r#"CLOSE(0x200: "")"#,
            },
            Example {
                bytes: "1c0a0602ff41",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"transport""#,
                    r#","error":"protocol_violation","trigger_frame_type":6"#,
                    r#","reason_bytes":"ff41"}"#,
                ),
                text: r#"CLOSE(PROTOCOL_VIOLATION: "�A")"#,
            },
            Example {
                bytes: "1c7e760000",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"transport""#,
                    r#","error":"unknown","error_code":15990,"reason":""}"#,
                ),
                text: r#"CLOSE(PATH_UNSTABLE_OR_POOR: "")"#,
            },
        ],
    },
    Row {
        types: &[0x1d],
        packets: "__01",
        marks: "____",
        server_only: false,
        examples: &[
            Example {
                bytes: "1d410003627965",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"application""#,
                    r#","error":"unknown","error_code":256,"reason":"bye"}"#,
                ),
                text: r#"CLOSE(application 256: "bye")"#,
            },
            Example {
                bytes: "1d0702ff61",
                json: concat!(
                    r#"{"frame_type":"connection_close","error_space":"application""#,
                    r#","error":"unknown","error_code":7,"reason_bytes":"ff61"}"#,
                ),
                text: r#"CLOSE(application 7: "�a")"#,
            },
        ],
    },
    Row {
        types: &[0x1e],
        packets: "___1",
        marks: "af__",
        server_only: true,
        examples: &[
            Example {
                bytes: "1e",
                json: r#"{"frame_type":"handshake_done"}"#,
                text: "HANDSHAKE_DONE",
            },
        ],
    },
    Row {
        types: &[0x1f],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "1f",
                json: r#"{"frame_type":"immediate_ack"}"#,
                text: "IMMEDIATE_ACK",
            },
        ],
    },
    Row {
        types: &[0x30, 0x31],
        packets: "__01",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "30616263",
                json: r#"{"frame_type":"datagram","raw":{"length":3}}"#,
                text: "DATAGRAM(3 bytes)",
            },
            Example {
                bytes: "3103616263",
                json: r#"{"frame_type":"datagram","raw":{"length":3}}"#,
                text: "DATAGRAM(3 bytes)",
            },
            Example {
                bytes: "30",
                json: r#"{"frame_type":"datagram","raw":{"length":0}}"#,
                text: "DATAGRAM(0 bytes)",
            },
        ],
    },
    Row {
        types: &[0x3e, 0x3f],
        packets: "___1",
        marks: "____",
        server_only: false,
        examples: &[
            Example {
                bytes: "3e020543e801000003",
                json: concat!(
                    r#"{"frame_type":"path_ack","path_id":2,"ack_delay":8.0"#,
                    r#","acked_ranges":[[5],[0,3]]}"#,
                ),
                text: "PATH_ACK(2 5,0-3 8ms)",
            },
            Example {
                bytes: "3f020543e801000003070809",
                json: concat!(
                    r#"{"frame_type":"path_ack","path_id":2,"ack_delay":8.0"#,
                    r#","acked_ranges":[[5],[0,3]],"ect1":8,"ect0":7,"ce":9}"#,
                ),
                text: "PATH_ACK(2 5,0-3 8ms)",
            },
        ],
    },
    Row {
        types: &[0xaf],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "40af0102800061a803",
                json: concat!(
                    r#"{"frame_type":"ack_frequency","sequence_number":1"#,
                    r#","ack_eliciting_threshold":2,"requested_max_ack_delay":25.0"#,
                    r#","reordering_threshold":3}"#,
                ),
                text: "ACK_FREQUENCY(2 packets 25ms)",
            },
        ],
    },
    Row {
        types: &[0x3e75],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e75017e76",
                json: r#"{"frame_type":"path_abandon","path_id":1,"error_code":15990}"#,
                text: "PATH_ABANDON(1 PATH_UNSTABLE_OR_POOR)",
            },
            Example {
                bytes: "7e750107",
                json: r#"{"frame_type":"path_abandon","path_id":1,"error_code":7}"#,
                text: "PATH_ABANDON(1 FRAME_ENCODING_ERROR)",
            },
        ],
    },
    Row {
        types: &[0x3e76],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e760104",
                json: concat!(
                    r#"{"frame_type":"path_status_backup","path_id":1"#,
                    r#","path_status_sequence_number":4}"#,
                ),
                text: "PATH_STATUS_BACKUP(1 4)",
            },
        ],
    },
    Row {
        types: &[0x3e77],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e770105",
                json: concat!(
                    r#"{"frame_type":"path_status_available","path_id":1"#,
                    r#","path_status_sequence_number":5}"#,
                ),
                text: "PATH_STATUS_AVAILABLE(1 5)",
            },
        ],
    },
    Row {
        types: &[0x3e78],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e7805020103c0ffee5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a",
                json: concat!(
                    r#"{"frame_type":"path_new_connection_id","path_id":5,"sequence_number":2"#,
                    r#","retire_prior_to":1,"connection_id_length":3"#,
                    r#","connection_id":"c0ffee"}"#,
                ),
                text: "PATH_NEW_CONNECTION_ID(5 2 c0ffee)",
            },
        ],
    },
    Row {
        types: &[0x3e79],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e790300",
                json: concat!(
                    r#"{"frame_type":"path_retire_connection_id","path_id":3"#,
                    r#","sequence_number":0}"#,
                ),
                text: "PATH_RETIRE_CONNECTION_ID(3 0)",
            },
        ],
    },
    Row {
        types: &[0x3e7a],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e7a08",
                json: r#"{"frame_type":"max_path_id","maximum_path_id":8}"#,
                text: "MAX_PATH_ID(8)",
            },
        ],
    },
    Row {
        types: &[0x3e7b],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e7b07",
                json: r#"{"frame_type":"paths_blocked","maximum_path_id":7}"#,
                text: "PATHS_BLOCKED(7)",
            },
        ],
    },
    Row {
        types: &[0x3e7c],
        packets: "___1",
        marks: "af__",
        server_only: false,
        examples: &[
            Example {
                bytes: "7e7c0602",
                json: r#"{"frame_type":"path_cids_blocked","path_id":6,"next_sequence_number":2}"#,
                text: "PATH_CIDS_BLOCKED(6 2)",
            },
        ],
    },
];
