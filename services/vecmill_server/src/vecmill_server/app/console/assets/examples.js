// Texts to start from.

export const SENTENCES = [
  "How do I reset my password?",
  "I forgot my login and cannot get in.",
  "The weather is lovely today.",
  "It is sunny outside.",
  "Our office is open from nine to five.",
].join("\n");

export const QUERY = "How do plants make their food?";

export const DOCUMENTS = [
  "Photosynthesis turns light, water and carbon dioxide into sugar.",
  "Chlorophyll gives leaves their green colour.",
  "A balanced diet has vegetables, grains and proteins.",
  "The stock market closed higher on Friday.",
].join("\n");

export const REVIEWS = [
  "I love this phone, the battery lasts for days.",
  "The package arrived late and the box was damaged.",
  "It does what it says.",
].join("\n");

export const NEWS = [
  "Ada Lovelace was born in London and worked with Charles Babbage.",
  "The United Nations has its headquarters in New York.",
].join("\n");

// A query and its right answer.
export const LABELLED = [
  "How do plants make their food? => Photosynthesis turns light, water and carbon dioxide into sugar.",
  "Why are leaves green? => Chlorophyll gives leaves their green colour.",
  "What should I eat? => A balanced diet has vegetables, grains and proteins.",
  "How did shares do? => The stock market closed higher on Friday.",
  "Where can I change my password? => Open the settings and choose Security to set a new password.",
].join("\n");

export const PICTURE_WORDS = ["a photo of a person", "a photo of an animal", "a landscape", "a drawing", "a page of text"].join("\n");
