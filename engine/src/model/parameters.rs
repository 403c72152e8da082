//! Names, shapes and order of a model's parameters.

use super::ModelConfig;

/// Name and shape of one parameter.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Parameter {
    /// Name as in Hugging Face checkpoints.
    pub name: String,
    /// `[outputs, inputs]` of a matrix, `[width]` of a vector.
    pub shape: Vec<usize>,
    /// Whether it is multiplied with activations and so is also kept in packed form.
    pub matrix: bool,
}

impl Parameter {
    /// Number of elements.
    #[must_use]
    pub fn length(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A projection's places in the parameter list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projection {
    pub(crate) weight: usize,
    pub(crate) bias: Option<usize>,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
}

/// A layer's places in the parameter list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPlaces {
    pub(crate) input_norm: usize,
    pub(crate) query: Projection,
    pub(crate) key: Projection,
    pub(crate) value: Projection,
    /// Norms of query and key heads.
    pub(crate) head_norms: Option<(usize, usize)>,
    pub(crate) output: Projection,
    pub(crate) post_norm: usize,
    pub(crate) gate: Projection,
    pub(crate) up: Projection,
    pub(crate) down: Projection,
}

/// All parameters of a model, in the fixed order in which they are hashed, saved, clipped and stepped.
#[derive(Clone, Debug)]
pub struct ParameterList {
    list: Vec<Parameter>,
    pub(crate) embedding: usize,
    pub(crate) layers: Vec<LayerPlaces>,
    pub(crate) norm: usize,
    pub(crate) head: usize,
    pub(crate) value_head: Option<Projection>,
}

struct Builder {
    list: Vec<Parameter>,
}

impl Builder {
    fn vector(&mut self, name: String, width: usize) -> usize {
        self.list.push(Parameter { name, shape: vec![width], matrix: false });
        self.list.len() - 1
    }

    fn matrix(&mut self, name: String, outputs: usize, inputs: usize) -> usize {
        self.list.push(Parameter { name, shape: vec![outputs, inputs], matrix: true });
        self.list.len() - 1
    }

    fn projection(&mut self, name: &str, outputs: usize, inputs: usize, bias: bool) -> Projection {
        let weight = self.matrix(format!("{name}.weight"), outputs, inputs);
        let bias = bias.then(|| self.vector(format!("{name}.bias"), outputs));
        Projection { weight, bias, outputs, inputs }
    }
}

impl ParameterList {
    /// The parameters of `config`, with a value head if asked for.
    #[must_use]
    pub fn new(config: &ModelConfig, value_head: bool) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let (queries, keys) = (config.query_width(), config.key_width());
        let bias = config.has_qkv_bias();
        let mut builder = Builder { list: Vec::new() };
        let embedding = builder.matrix("model.embed_tokens.weight".into(), config.vocab_size, width);
        builder.list[embedding].matrix = config.tied;
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            layers.push(LayerPlaces {
                input_norm: builder.vector(name("input_layernorm.weight"), width),
                query: builder.projection(&name("self_attn.q_proj"), queries, width, bias),
                key: builder.projection(&name("self_attn.k_proj"), keys, width, bias),
                value: builder.projection(&name("self_attn.v_proj"), keys, width, bias),
                head_norms: config.has_head_norms().then(|| {
                    let query = builder.vector(name("self_attn.q_norm.weight"), config.head_dim);
                    (query, builder.vector(name("self_attn.k_norm.weight"), config.head_dim))
                }),
                output: builder.projection(&name("self_attn.o_proj"), width, queries, false),
                post_norm: builder.vector(name("post_attention_layernorm.weight"), width),
                gate: builder.projection(&name("mlp.gate_proj"), inner, width, false),
                up: builder.projection(&name("mlp.up_proj"), inner, width, false),
                down: builder.projection(&name("mlp.down_proj"), width, inner, false),
            });
        }
        let norm = builder.vector("model.norm.weight".into(), width);
        let head =
            if config.tied { embedding } else { builder.matrix("lm_head.weight".into(), config.vocab_size, width) };
        let value_head = value_head.then(|| builder.projection("value_head", 1, width, true));
        Self { list: builder.list, embedding, layers, norm, head, value_head }
    }

    /// The parameters in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Parameter> {
        self.list.iter()
    }

    /// Number of parameters, counting each tensor once.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none; never true.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The parameter at a place.
    ///
    /// # Panics
    /// If `place` is not below [`ParameterList::len`].
    #[must_use]
    pub fn get(&self, place: usize) -> &Parameter {
        &self.list[place]
    }

    /// Bytes that the parameters take on a device in f32, with their packed copies and, if trained, gradients and moments.
    #[must_use]
    pub fn bytes(&self, trained: bool) -> u64 {
        let copies = |parameter: &Parameter| 1 + usize::from(parameter.matrix) + if trained { 3 } else { 0 };
        self.list.iter().map(|parameter| 4 * (copies(parameter) * parameter.length()) as u64).sum()
    }

    /// Number of trained numbers.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.list.iter().map(Parameter::length).sum()
    }
}
